//! Tables of the store, and migration of older versions. Each step brings a store from one version
//! to the next; all steps run in one transaction.

use rusqlite::{Connection, ErrorCode, OptionalExtension as _, TransactionBehavior, params};

use crate::facts::ResultFacts;
use crate::packing;

/// SQLite application ID in the file header, which identifies a file as a store: `HoRL`.
pub(crate) const APPLICATION_ID: i64 = 0x486f_524c;

/// Number of a run, and its value for a new column.
type RunColumnValue = (i64, i64);

/// Migration from one version to the next: changes to the tables, and then to the existing runs.
struct MigrationStep {
    tables: &'static str,
    /// Function that reads the new values before anything is written, because SQLite aborts a write
    /// transaction when it detects damage.
    values: fn(&Connection) -> rusqlite::Result<Vec<RunColumnValue>>,
    update: &'static str,
}

impl MigrationStep {
    const fn tables(tables: &'static str) -> Self {
        Self { tables, values: |_| Ok(Vec::new()), update: "" }
    }
}

/// Steps from no tables to version 1, from 1 to 2, and so on.
const STEPS: [MigrationStep; 2] = [
    // Texts are in a table of their own, so that listing runs does not read them.
    MigrationStep::tables(
        "CREATE TABLE run (
         id INTEGER PRIMARY KEY AUTOINCREMENT,
         key TEXT NOT NULL UNIQUE,
         schema TEXT NOT NULL,
         started TEXT NOT NULL,
         command TEXT NOT NULL,
         errors INTEGER NOT NULL,
         warnings INTEGER NOT NULL,
         bytes INTEGER NOT NULL,
         name TEXT UNIQUE
     ) STRICT;
     CREATE INDEX run_by_start ON run (started);
     CREATE TABLE result (
         run INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
         packed BLOB NOT NULL
     ) STRICT;",
    ),
    MigrationStep {
        tables: "ALTER TABLE run ADD COLUMN broken INTEGER NOT NULL DEFAULT 0",
        values: broken_limits,
        update: "UPDATE run SET broken = ?2 WHERE id = ?1",
    },
];

/// Returns the number of each run with failed limits, and how many failed. Damaged runs are
/// omitted.
fn broken_limits(connection: &Connection) -> rusqlite::Result<Vec<RunColumnValue>> {
    let mut ids = connection.prepare("SELECT id FROM run")?;
    let ids: Vec<i64> = ids.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut result = connection.prepare("SELECT packed FROM result WHERE run = ?1")?;
    let mut all = Vec::new();
    for id in ids {
        let packed: Option<Vec<u8>> = match result.query_row([id], |row| row.get(0)).optional() {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => None,
            read => read?,
        };
        let text = packed.and_then(|packed| packing::unpack(&packed));
        let facts = text.and_then(|text| ResultFacts::parse(&text).ok());
        all.extend(
            facts
                .filter(|facts| facts.failed_limits > 0)
                .map(|facts| (id, facts.failed_limits as i64)),
        );
    }
    Ok(all)
}

/// Newest version, used for new stores.
pub(crate) const VERSION: i64 = STEPS.len() as i64;

/// State of a database file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DatabaseState {
    /// Store of the version that this program uses.
    Current,
    /// Store of an older version, whose number is stated; 0 for an empty file.
    Older(i64),
    /// Store of a version that this program does not support, whose number is stated.
    Newer(i64),
    /// Database of another application.
    Foreign,
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

/// Migrates an empty or older database to the newest version, and returns its final state. A newer
/// or foreign database stays unchanged.
pub(crate) fn migrate(connection: &mut Connection) -> rusqlite::Result<DatabaseState> {
    migrate_with_steps(connection, &STEPS)
}

/// Returns the state of a database without changing it; an empty one is older, of version 0.
pub(crate) fn database_state(connection: &Connection) -> rusqlite::Result<DatabaseState> {
    let state = final_state(connection, VERSION)?;
    state.map_or_else(|| pragma(connection, "user_version").map(DatabaseState::Older), Ok)
}

/// Migrates an empty or older database to the version after the last of these steps, and returns
/// its final state. A newer or foreign database stays unchanged.
fn migrate_with_steps(
    connection: &mut Connection,
    steps: &[MigrationStep],
) -> rusqlite::Result<DatabaseState> {
    let newest = steps.len() as i64;
    // All checks see one instant: another process may be creating the store.
    let reading = connection.transaction()?;
    if let Some(state) = final_state(&reading, newest)? {
        return Ok(state);
    }
    drop(reading);
    let first = pragma(connection, "user_version")?.max(0) as usize;
    let mut values = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        // An empty file has no runs to read.
        let is_due = first > 0 && index >= first;
        values.push(if is_due { (step.values)(connection)? } else { Vec::new() });
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have migrated the store meanwhile.
    if let Some(state) = final_state(&transaction, newest)? {
        return Ok(state);
    }
    let from = pragma(&transaction, "user_version")?;
    for (step, values) in steps.iter().zip(values).skip(from.max(0) as usize) {
        transaction.execute_batch(step.tables)?;
        for (run, value) in values {
            transaction.execute(step.update, params![run, value])?;
        }
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", newest)?;
    transaction.commit()?;
    Ok(DatabaseState::Current)
}

/// Returns the state of a database; `None` if it has to be migrated because it is empty or older
/// than `newest`.
fn final_state(connection: &Connection, newest: i64) -> rusqlite::Result<Option<DatabaseState>> {
    let (application, version) =
        (pragma(connection, "application_id")?, pragma(connection, "user_version")?);
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match (application, version) {
        (0, 0) if tables == 0 => None,
        (APPLICATION_ID, version) if version == newest => Some(DatabaseState::Current),
        (APPLICATION_ID, version) if (1..newest).contains(&version) => None,
        (APPLICATION_ID, version) => Some(DatabaseState::Newer(version)),
        _ => Some(DatabaseState::Foreign),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MORE: MigrationStep =
        MigrationStep::tables("ALTER TABLE run ADD COLUMN host TEXT NOT NULL DEFAULT '-'");

    /// A store as each version's programs left it, in the order of the versions.
    const LEFT: [&str; VERSION as usize] =
        [include_str!("testdata/version-1.sql"), include_str!("testdata/version-2.sql")];

    fn left(version: usize) -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(LEFT[version - 1]).unwrap();
        connection
    }

    fn stored_run(connection: &Connection) -> (i64, String, i64) {
        let sql = "SELECT id, name, length(packed) FROM run JOIN result ON run = id";
        let fields = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        connection.query_row(sql, [], fields).unwrap()
    }

    #[test]
    fn every_older_version_becomes_this_one_with_its_runs() {
        for version in 1..=LEFT.len() {
            let mut connection = left(version);
            let before = stored_run(&connection);
            assert_eq!(migrate(&mut connection).unwrap(), DatabaseState::Current);
            assert_eq!(pragma(&connection, "user_version").unwrap(), VERSION);
            assert_eq!(stored_run(&connection), before);
        }
    }

    #[test]
    fn a_step_is_done_once() {
        let mut connection = left(1);
        let [first, second] = STEPS;
        let steps = [first, second, MORE];
        for _ in 0..2 {
            assert_eq!(
                migrate_with_steps(&mut connection, &steps).unwrap(),
                DatabaseState::Current
            );
        }
        assert_eq!(pragma(&connection, "user_version").unwrap(), 3);
        assert_eq!(stored_run(&connection).0, 7);
        // The older program leaves it alone.
        assert_eq!(
            migrate_with_steps(&mut connection, &steps[..2]).unwrap(),
            DatabaseState::Newer(3)
        );
    }

    #[test]
    fn limits_that_were_broken_are_counted_in_older_runs() {
        let mut connection = left(1);
        let text = r#"{"schema":"horolog.load/2","started":"2026-01-02T03:04:05Z",
            "limits":[{"failed":true},{"failed":false},{"failed":true}]}"#;
        let add = |id: i64, packed: Vec<u8>| {
            let run = "INSERT INTO run VALUES (?1, ?1, 'horolog.load/2', '', '', 0, 0, 1, NULL)";
            connection.execute(run, [id]).unwrap();
            connection.execute("INSERT INTO result VALUES (?1, ?2)", params![id, packed]).unwrap();
        };
        add(8, packing::pack(text));
        add(9, vec![1, 2, 3]);
        assert_eq!(migrate(&mut connection).unwrap(), DatabaseState::Current);
        let mut all = connection.prepare("SELECT broken FROM run ORDER BY id").unwrap();
        let broken: Result<Vec<i64>, _> = all.query_map([], |row| row.get(0)).unwrap().collect();
        assert_eq!(broken.unwrap(), [0, 2, 0]);
    }

    /// The first page after those of the tables' own rows gets a link to a page that is absent.
    #[test]
    fn a_damaged_page_keeps_no_store_from_becoming_a_newer_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let connection = Connection::open(file.path()).unwrap();
        connection.execute_batch(LEFT[0]).unwrap();
        let pages = || pragma(&connection, "page_count").unwrap() as usize;
        let (before, size) = (pages(), pragma(&connection, "page_size").unwrap() as usize);
        let run = "INSERT INTO run VALUES (8, '8', 'horolog.load/2', '', '', 0, 0, 1, NULL)";
        connection.execute(run, []).unwrap();
        let result = "INSERT INTO result VALUES (8, zeroblob(60000))";
        connection.execute(result, []).unwrap();
        assert!(pages() > before + 10);
        let at = (before + 4) * size;
        drop(connection);
        let mut bytes = std::fs::read(file.path()).unwrap();
        bytes[at..at + 4].copy_from_slice(&1_000_000_u32.to_be_bytes());
        std::fs::write(file.path(), bytes).unwrap();
        let mut connection = Connection::open(file.path()).unwrap();
        let packed = "SELECT packed FROM result WHERE run = 8";
        connection.query_row(packed, [], |row| row.get::<_, Vec<u8>>(0)).unwrap_err();
        assert_eq!(migrate(&mut connection).unwrap(), DatabaseState::Current);
        assert_eq!(pragma(&connection, "user_version").unwrap(), VERSION);
    }

    #[test]
    fn a_step_that_fails_leaves_the_store_as_it_was() {
        let mut connection = left(1);
        let [first, second] = STEPS;
        let steps =
            [first, second, MigrationStep::tables("DROP TABLE result; CREATE TABLE run (id)")];
        migrate_with_steps(&mut connection, &steps).unwrap_err();
        assert_eq!(pragma(&connection, "user_version").unwrap(), 1);
        assert_eq!(stored_run(&connection).0, 7);
        assert_eq!(migrate(&mut connection).unwrap(), DatabaseState::Current);
    }
}
