-- Only adds, so that programs of step 1 go on working. The server commits each
-- statement, so each can be run again after a first run that was cut off; the
-- ALTER looks first, since not every server has ADD COLUMN IF NOT EXISTS.
-- +goose Up
SET @alter = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = '{{prefix}}msg_consume' AND column_name = 'redriven_at') = 0,
  'ALTER TABLE {{prefix}}msg_consume ADD COLUMN redriven_at DATETIME(3) NULL, ADD KEY idx_compensate (status, next_retry_at)',
  'DO 0');
PREPARE alter_msg_consume FROM @alter;
EXECUTE alter_msg_consume;
DEALLOCATE PREPARE alter_msg_consume;

-- One row for each run of a consumer process; stopped_at NULL: it runs, or died.
CREATE TABLE IF NOT EXISTS {{prefix}}run (
  id             VARBINARY(64)  NOT NULL PRIMARY KEY,
  consumer_group VARBINARY(255) NOT NULL,
  started_at     DATETIME(3)    NOT NULL,
  seen_at        DATETIME(3)    NOT NULL,
  stopped_at     DATETIME(3)    NULL,
  KEY idx_group (consumer_group, seen_at)
) ENGINE = InnoDB;

-- One row for each manual action: who, what, why; retry_cnt and version are as
-- before it.
CREATE TABLE IF NOT EXISTS {{prefix}}audit (
  id           BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
  actor        VARCHAR(255)   CHARACTER SET utf8mb4 NOT NULL,
  action       VARCHAR(32)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  reason       VARCHAR(2000)  CHARACTER SET utf8mb4 NOT NULL,
  event_id     VARBINARY(255) NOT NULL,
  consumer     VARBINARY(255) NOT NULL,
  state_before VARCHAR(16)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  state_after  VARCHAR(16)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  retry_cnt    INT            NOT NULL,
  version      BIGINT         NOT NULL,
  created_at   DATETIME(3)    NOT NULL,
  KEY idx_event (event_id, consumer)
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE IF EXISTS {{prefix}}audit;
DROP TABLE IF EXISTS {{prefix}}run;
SET @alter = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = '{{prefix}}msg_consume' AND column_name = 'redriven_at') = 1,
  'ALTER TABLE {{prefix}}msg_consume DROP KEY idx_compensate, DROP COLUMN redriven_at',
  'DO 0');
PREPARE alter_msg_consume FROM @alter;
EXECUTE alter_msg_consume;
DEALLOCATE PREPARE alter_msg_consume;
