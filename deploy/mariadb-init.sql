-- The test user of scripts/services. '%' because connections through the
-- published port come from Docker's network; the port itself is on loopback.
CREATE USER IF NOT EXISTS txmq@'%' IDENTIFIED BY 'txmq';
GRANT ALL PRIVILEGES ON *.* TO txmq@'%' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS txmq;
