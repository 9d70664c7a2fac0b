-- A context that version 3 recorded, with the keys that it is found by.
INSERT INTO meta (key, value)
VALUES ('index_key', '8d808015fcb5406dd70bcef04b17c51d5496662f2535e9a9e46f9790070a507a');
INSERT INTO records (context_id, record_hash, content_hash, name, created_at, freshness_status, core, disclosures, signature, redactions)
VALUES ('01a1e96b-f0ac-7233-ae27-137a711b19bb', 'sha256:81a8b018c448570e1233ce453fecdbcc1a170ce56b717ff81e4d608e15edfb1a', 'sha256:2ef0e93365b4f47b504c330d830818758a07ed32c95bdab00042130a7ec2117a', 'greeting', 1794917527724447, 'guaranteed', CAST('{"context":{"definition":"sha256:0c87b305ad165a7a11a18e145ffb6598fd60fd57f7e1b21d400c5595fd8b146f","name":"greeting","version":null},"context_id":"01a1e96b-f0ac-7233-ae27-137a711b19bb","contexts":[],"created_at":"2026-11-17T12:12:07.724447Z","environment":"development","features":[{"age_ms":1246,"as_of":"2026-11-17T12:12:06.479275Z","entity":"User","entity_id":{"$sd":"b711ced0cde1777772a87862ab6f9a3b7d4d2f52b1bef4e0eea381d887f9d78b"},"feature":"clicks","fresh":true,"source":"online","value":{"$sd":"c31720391c77885fae2e395a03903956a7c06c17c5176a90ead62f865ea38826"},"written_at":"2026-11-17T12:12:06.514692Z"}],"freshness":{"sla_ms":null,"stalest_ms":1246,"status":"guaranteed","violations":[]},"inputs":{"user_id":{"$sd":"3bcc89fdf68de3062206fa685f84aeef53c93cbe0a6c10d849c41a2a68a1dcf6"}},"interaction_ref":null,"items":[{"content":{"$sd":"ca795a80337f197583a93580c91e4420512e75feed5883138c3b7e7d889067fa"},"decision":"kept","emitted":null,"emitted_tokens":5,"priority":0,"reason":"required","required":true,"section":null,"short_by":0,"source":{"kind":"literal","ref":null},"tokens":5,"truncate":false}],"output":{"content":{"$sd":"b5a2063d0dbd086caa93da01ee5740b9612c32ab8c1a41444df31af7b45dbb06"},"content_hash":"sha256:2ef0e93365b4f47b504c330d830818758a07ed32c95bdab00042130a7ec2117a","cost_nano_usd":null,"items_dropped":0,"items_kept":1,"items_truncated":0,"overflow":false,"tokens":5},"policy":{"backfill":false,"freshness_sla_ms":null,"freshness_strict":false,"max_tokens":null,"model":null,"on_overflow":"error","separator":"\n\n"},"retrievals":[],"spec":"CRS-001","timing":{"assembly_us":213050,"started_at":"2026-11-17T12:12:07.511420Z"},"tokenizer":{"exact":false,"margin_percent":30,"name":"cl100k_base"},"version":1,"versions":{"headwater":"0.1.0","python":"3.11.7","tokenizer":"0.22.0"}}' AS BLOB), CAST('[{"pointer":"/features/0/entity_id","salt":"bXnFgVVAyn33YNZm2L7Cxw","value":"u1"},{"pointer":"/features/0/value","salt":"X6TZ-2J9ikvs-_mmDNuUvA","value":46},{"pointer":"/inputs/user_id","salt":"CfXexZiHz0OYnQ-Pt2OEPQ","value":"u1"},{"pointer":"/items/0/content","salt":"EPBiP2QYFAOdf2rdJQzYwg","value":"Clicks: 46"},{"pointer":"/output/content","salt":"8zrVjCLbwZ4rpQXXFj4Cvw","value":"Clicks: 46"}]' AS BLOB), NULL, CAST('[]' AS BLOB));
INSERT INTO waiting_keys (key, created_at, context_id)
VALUES (x'dd59d0be140e6a9d290006361e750a6d', 1794917527724447, '01a1e96b-f0ac-7233-ae27-137a711b19bb');
INSERT INTO waiting_keys (key, created_at, context_id)
VALUES (x'02ba4ea5807332e38a402687caef0012', 1794917527724447, '01a1e96b-f0ac-7233-ae27-137a711b19bb');
INSERT INTO waiting_keys (key, created_at, context_id)
VALUES (x'797e5b24cdc8d4cb8879805377c58940', 1794917527724447, '01a1e96b-f0ac-7233-ae27-137a711b19bb');
INSERT INTO waiting_keys (key, created_at, context_id)
VALUES (x'63eb9f34a119ecc396ce694b2205e3e6', 1794917527724447, '01a1e96b-f0ac-7233-ae27-137a711b19bb');
INSERT INTO waiting_keys (key, created_at, context_id)
VALUES (x'63eb9f34a119ecc396ce694b2205e3e6', 1794917527724447, '01a1e96b-f0ac-7233-ae27-137a711b19bb');
INSERT INTO waiting_keys (key, created_at, context_id)
VALUES (x'63eb9f34a119ecc396ce694b2205e3e6', 1794917527724447, '01a1e96b-f0ac-7233-ae27-137a711b19bb');
INSERT INTO waiting_keys (key, created_at, context_id)
VALUES (x'63eb9f34a119ecc396ce694b2205e3e6', 1794917527724447, '01a1e96b-f0ac-7233-ae27-137a711b19bb');
INSERT INTO waiting_keys (key, created_at, context_id)
VALUES (x'63eb9f34a119ecc396ce694b2205e3e6', 1794917527724447, '01a1e96b-f0ac-7233-ae27-137a711b19bb');
