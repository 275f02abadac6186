-- +goose Up
CREATE TABLE {{prefix}}meta (
  name       TEXT     NOT NULL PRIMARY KEY,
  value      TEXT     NOT NULL,
  updated_at DATETIME NOT NULL
);

-- One row for each event and handler. Status: PROCESSING, SUCCESS, FAIL, DEAD.
CREATE TABLE {{prefix}}msg_consume (
  id            INTEGER  NOT NULL PRIMARY KEY AUTOINCREMENT,
  event_id      TEXT     NOT NULL,
  consumer      TEXT     NOT NULL,
  status        TEXT     NOT NULL,
  retry_cnt     INTEGER  NOT NULL,
  version       INTEGER  NOT NULL,
  owner         TEXT     NOT NULL DEFAULT '',
  lease_until   DATETIME NULL,
  next_retry_at DATETIME NULL,
  last_error    TEXT     NOT NULL DEFAULT '',
  payload_hash  BLOB     NOT NULL,
  topic         TEXT     NOT NULL,
  broker_name   TEXT     NOT NULL,
  queue_id      INTEGER  NOT NULL,
  queue_offset  INTEGER  NOT NULL,
  msg_id        TEXT     NOT NULL,
  offset_msg_id TEXT     NOT NULL,
  body          BLOB     NULL,
  properties    BLOB     NULL,
  created_at    DATETIME NOT NULL,
  updated_at    DATETIME NOT NULL,
  UNIQUE (event_id, consumer)
);
CREATE INDEX {{prefix}}msg_consume_sweep ON {{prefix}}msg_consume (status, lease_until);
CREATE INDEX {{prefix}}msg_consume_purge ON {{prefix}}msg_consume (status, updated_at);

-- One row for each attempt: state COMMITTED (written by the local transaction)
-- or FENCED (written by the checker, with event_id NULL so that the event can
-- be sent again).
CREATE TABLE {{prefix}}tx_log (
  id             INTEGER  NOT NULL PRIMARY KEY AUTOINCREMENT,
  attempt        TEXT     NOT NULL UNIQUE,
  topic          TEXT     NOT NULL,
  event_id       TEXT     NULL,
  fenced_event   TEXT     NULL,
  state          TEXT     NOT NULL,
  route          TEXT     NOT NULL,
  producer_group TEXT     NOT NULL,
  created_at     DATETIME NOT NULL,
  rescued_at     DATETIME NULL,
  UNIQUE (topic, event_id)
);
CREATE INDEX {{prefix}}tx_log_fenced ON {{prefix}}tx_log (fenced_event);
CREATE INDEX {{prefix}}tx_log_purge ON {{prefix}}tx_log (created_at);

CREATE TABLE {{prefix}}job_lease (
  name        TEXT     NOT NULL PRIMARY KEY,
  owner       TEXT     NOT NULL,
  version     INTEGER  NOT NULL,
  lease_until DATETIME NOT NULL,
  due_at      DATETIME NOT NULL
);

-- +goose Down
DROP TABLE {{prefix}}job_lease;
DROP TABLE {{prefix}}tx_log;
DROP TABLE {{prefix}}msg_consume;
DROP TABLE {{prefix}}meta;
