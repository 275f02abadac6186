-- IF NOT EXISTS: the server commits each statement, so a first run that was cut
-- off leaves some of them. Foreign tables were refused before this.
-- +goose Up
CREATE TABLE IF NOT EXISTS {{prefix}}meta (
  name       VARBINARY(64)   NOT NULL PRIMARY KEY,
  value      VARBINARY(1024) NOT NULL,
  updated_at DATETIME(3)     NOT NULL
) ENGINE = InnoDB;

-- One row for each event and handler. Status: PROCESSING, SUCCESS, FAIL, DEAD.
CREATE TABLE IF NOT EXISTS {{prefix}}msg_consume (
  id            BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
  event_id      VARBINARY(255) NOT NULL,
  consumer      VARBINARY(255) NOT NULL,
  status        VARCHAR(16)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  retry_cnt     INT            NOT NULL,
  version       BIGINT         NOT NULL,
  owner         VARBINARY(255) NOT NULL DEFAULT '',
  lease_until   DATETIME(3)    NULL,
  next_retry_at DATETIME(3)    NULL,
  last_error    VARCHAR(2000)  CHARACTER SET utf8mb4 NOT NULL DEFAULT '',
  payload_hash  BINARY(32)     NOT NULL,
  topic         VARBINARY(255) NOT NULL,
  broker_name   VARBINARY(255) NOT NULL,
  queue_id      INT            NOT NULL,
  queue_offset  BIGINT         NOT NULL,
  msg_id        VARBINARY(255) NOT NULL,
  offset_msg_id VARBINARY(255) NOT NULL,
  body          LONGBLOB       NULL,
  properties    MEDIUMBLOB     NULL,
  created_at    DATETIME(3)    NOT NULL,
  updated_at    DATETIME(3)    NOT NULL,
  UNIQUE KEY uk_event_consumer (event_id, consumer),
  KEY idx_sweep (status, lease_until),
  KEY idx_purge (status, updated_at)
) ENGINE = InnoDB;

-- One row for each attempt: state COMMITTED (written by the local transaction)
-- or FENCED (written by the checker, with event_id NULL so that the event can
-- be sent again).
CREATE TABLE IF NOT EXISTS {{prefix}}tx_log (
  id             BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
  attempt        VARBINARY(255) NOT NULL,
  topic          VARBINARY(255) NOT NULL,
  event_id       VARBINARY(255) NULL,
  fenced_event   VARBINARY(255) NULL,
  state          VARCHAR(16)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  route          VARCHAR(16)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  producer_group VARBINARY(255) NOT NULL,
  created_at     DATETIME(3)    NOT NULL,
  rescued_at     DATETIME(3)    NULL,
  UNIQUE KEY uk_attempt (attempt),
  UNIQUE KEY uk_topic_event (topic, event_id),
  KEY idx_fenced (fenced_event),
  KEY idx_purge (created_at)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS {{prefix}}job_lease (
  name        VARBINARY(255) NOT NULL PRIMARY KEY,
  owner       VARBINARY(255) NOT NULL,
  version     BIGINT         NOT NULL,
  lease_until DATETIME(3)    NOT NULL,
  due_at      DATETIME(3)    NOT NULL
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE IF EXISTS {{prefix}}job_lease;
DROP TABLE IF EXISTS {{prefix}}tx_log;
DROP TABLE IF EXISTS {{prefix}}msg_consume;
DROP TABLE IF EXISTS {{prefix}}meta;
