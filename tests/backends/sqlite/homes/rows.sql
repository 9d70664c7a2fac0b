-- Rows that version 3 wrote for one feature, in the tables that version 1 had.
INSERT INTO meta (key, value)
VALUES ('partitions', '16');
INSERT INTO events (seq, partition, event_id, event_type, entity_id, timestamp, received_at, payload, only_feature)
VALUES (51, 6, 'bad1', 'click', 'u1', 1794917526480149, 1794917526480186, CAST('{"bad":true}' AS BLOB), NULL);
INSERT INTO events (seq, partition, event_id, event_type, entity_id, timestamp, received_at, payload, only_feature)
VALUES (52, 12, 'late', 'click', 'u2', 1794917527772036, 1794917527772113, CAST('{"n":99}' AS BLOB), NULL);
INSERT INTO seen (event_id, expires_at)
VALUES ('bad1', 1795003926480186);
INSERT INTO seen (event_id, expires_at)
VALUES ('late', 1795003927772113);
INSERT INTO cursors (consumer_group, partition, seq, owner, epoch, attempt_seq, attempts)
VALUES ('headwater_workers', 0, 46, NULL, 1, 0, 0);
INSERT INTO cursors (consumer_group, partition, seq, owner, epoch, attempt_seq, attempts)
VALUES ('headwater_workers', 6, 51, NULL, 1, 0, 0);
INSERT INTO cursors (consumer_group, partition, seq, owner, epoch, attempt_seq, attempts)
VALUES ('headwater_workers', 12, 48, NULL, 1, 0, 0);
INSERT INTO entities (entity, entity_id, partition, version, state)
VALUES ('User', 'u2', 12, 1, CAST('{"clicks":[47,1794917526479531,1794917526514724,null]}' AS BLOB));
INSERT INTO entities (entity, entity_id, partition, version, state)
VALUES ('User', 'u1', 6, 1, CAST('{"clicks":[46,1794917526479275,1794917526514692,null]}' AS BLOB));
INSERT INTO history (seq, feature, entity, entity_id, kind, value, as_of, written_at, cause)
VALUES (49, 'clicks', 'User', 'u1', 'int', CAST('41' AS BLOB), 1794917526478309, 1794917526512375, 'e41');
INSERT INTO history (seq, feature, entity, entity_id, kind, value, as_of, written_at, cause)
VALUES (50, 'clicks', 'User', 'u1', 'int', CAST('46' AS BLOB), 1794917526479275, 1794917526514692, 'e46');
INSERT INTO dead_letters (id, feature, event_type, event, error, traceback, attempts, partition, seq, first_failed_at, dead_at)
VALUES (1, 'clicks', 'click', CAST('{"event_type":"click","entity_id":"u1","payload":{"bad":true},"timestamp":"2026-11-17T12:12:06.480149Z","event_id":"bad1"}' AS BLOB), 'ValueError: bad', 'ValueError: bad
', 4, 6, 51, 1794917526519837, 1794917527400956);
