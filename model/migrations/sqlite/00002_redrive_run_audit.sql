-- Only adds, so that programs of step 1 go on working.
-- +goose Up
ALTER TABLE {{prefix}}msg_consume ADD COLUMN redriven_at DATETIME NULL;
CREATE INDEX {{prefix}}msg_consume_compensate ON {{prefix}}msg_consume (status, next_retry_at);

-- One row for each run of a consumer process; stopped_at NULL: it runs, or died.
CREATE TABLE {{prefix}}run (
  id             TEXT     NOT NULL PRIMARY KEY,
  consumer_group TEXT     NOT NULL,
  started_at     DATETIME NOT NULL,
  seen_at        DATETIME NOT NULL,
  stopped_at     DATETIME NULL
);
CREATE INDEX {{prefix}}run_group ON {{prefix}}run (consumer_group, seen_at);

-- One row for each manual action: who, what, why; retry_cnt and version are as
-- before it.
CREATE TABLE {{prefix}}audit (
  id           INTEGER  NOT NULL PRIMARY KEY AUTOINCREMENT,
  actor        TEXT     NOT NULL,
  action       TEXT     NOT NULL,
  reason       TEXT     NOT NULL,
  event_id     TEXT     NOT NULL,
  consumer     TEXT     NOT NULL,
  state_before TEXT     NOT NULL,
  state_after  TEXT     NOT NULL,
  retry_cnt    INTEGER  NOT NULL,
  version      INTEGER  NOT NULL,
  created_at   DATETIME NOT NULL
);
CREATE INDEX {{prefix}}audit_event ON {{prefix}}audit (event_id, consumer);

-- +goose Down
DROP TABLE {{prefix}}audit;
DROP TABLE {{prefix}}run;
DROP INDEX {{prefix}}msg_consume_compensate;
ALTER TABLE {{prefix}}msg_consume DROP COLUMN redriven_at;
