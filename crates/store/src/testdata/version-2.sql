-- A store of version 2 as its programs left it: one run with a name. It is never changed.
PRAGMA application_id = 1215255116;
PRAGMA user_version = 2;
CREATE TABLE run (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    schema TEXT NOT NULL,
    started TEXT NOT NULL,
    command TEXT NOT NULL,
    errors INTEGER NOT NULL,
    warnings INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    name TEXT UNIQUE,
    broken INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX run_by_start ON run (started);
CREATE TABLE result (
    run INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
    packed BLOB NOT NULL
) STRICT;
INSERT INTO run VALUES
    (7, '54de1d6a07b1c2c2', 'horolog.load/1', '2026-01-02T03:04:05.000Z', 'horolog load ntp 192.0.2.1', 0, 1, 147, 'main', 0);
INSERT INTO result VALUES
    (7, x'9300000000000000358dcd0ac2301084df65cfedba893f609ec353a587a5896da0c94a1214297d77d783971998f998d9a04e4b480c0e1629b2ca8cabb03f18e8a0362e2d78ad2cd94b4fa6277ba3a3a393a33312d1a0d024297156e8fe1fd0f037a196db53d55c2d125a343076f088d9c73c57e537a8e1154a6c1f7d7873c99ac33eee5f');
