#!/usr/bin/env python3
"""database.py work|check FILE: an SQLite database whose content is a function of the number of committed transactions.

work   goes on where the database ends, for ever: says the number of each transaction on a line when it is committed
check  integrity, and the content compared with what the committed transactions must have left; says their number

The journal mode is JOURNAL of the environment, DELETE or WAL.
"""
import hashlib
import os
import random
import sqlite3
import sys

# Rows that the transactions write over and over.
KEYS = 400


def changes(number):
    """What transaction `number` does: key to content, None for a deletion."""
    draw = random.Random(number)
    done = {}
    for _ in range(draw.randint(1, 12)):
        key = draw.randrange(KEYS)
        done[key] = None if draw.random() < 0.15 else hashlib.shake_256(b"%d-%d" % (number, key)).digest(draw.randint(1, 9000))
    return done


def connect(path):
    base = sqlite3.connect(path, isolation_level=None)
    # EXTRA: a commit is durable also when it is the removal of the rollback journal.
    base.execute("PRAGMA synchronous=EXTRA")
    mode = os.environ.get("JOURNAL", "DELETE")
    assert base.execute(f"PRAGMA journal_mode={mode}").fetchone()[0] == mode.lower()
    base.execute("BEGIN IMMEDIATE")
    base.execute("CREATE TABLE IF NOT EXISTS content(key INTEGER PRIMARY KEY, bytes BLOB)")
    base.execute("CREATE TABLE IF NOT EXISTS done(number INTEGER)")
    base.execute("CREATE INDEX IF NOT EXISTS by_length ON content(length(bytes))")
    base.execute("COMMIT")
    return base


def committed(base):
    return base.execute("SELECT coalesce(max(number), 0) FROM done").fetchone()[0]


def work(path):
    base = connect(path)
    number = committed(base)
    while True:
        number += 1
        base.execute("BEGIN IMMEDIATE")
        for key, content in changes(number).items():
            if content is None:
                base.execute("DELETE FROM content WHERE key=?", (key,))
            else:
                base.execute("INSERT OR REPLACE INTO content VALUES(?, ?)", (key, content))
        base.execute("DELETE FROM done")
        base.execute("INSERT INTO done VALUES(?)", (number,))
        base.execute("COMMIT")
        print(number, flush=True)


def check(path):
    base = connect(path)
    found = base.execute("PRAGMA integrity_check").fetchall()
    assert found == [("ok",)], found
    number = committed(base)
    expected = {}
    for earlier in range(1, number + 1):
        expected.update(changes(earlier))
    expected = {key: content for key, content in expected.items() if content is not None}
    actual = dict(base.execute("SELECT key, bytes FROM content"))
    wrong = [key for key in sorted(expected.keys() | actual.keys()) if expected.get(key) != actual.get(key)]
    assert not wrong, f"after {number} transactions the rows {wrong} are wrong"
    print(number)


{"work": work, "check": check}[sys.argv[1]](sys.argv[2])
