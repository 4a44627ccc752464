//! Storing and reading back: alone and concurrently, sound and damaged.

use std::fs;
use std::thread;

use tempfile::TempDir;

use super::*;

fn text(number: u64) -> String {
    let second = number % 60;
    let minute = number / 60 % 60;
    format!(
        r#"{{"schema":"horolog.{}/1","started":"2026-01-02T03:{minute:02}:{second:02}.000Z","command":["horolog","{number}"],"findings":[{{"severity":"error"}}]}}"#,
        if number.is_multiple_of(2) { "load" } else { "query" }
    )
}

fn add(store: &mut Store, number: u64) -> i64 {
    let text = text(number);
    store.add(&ResultFacts::parse(&text).unwrap(), &text).unwrap()
}

fn temporary_path() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/runs.db");
    (directory, path)
}

#[test]
fn stored_results_are_read_back() {
    let (_directory, path) = temporary_path();
    let mut store = Store::open(&path).unwrap();
    let ids = [3, 1, 2].map(|number| add(&mut store, number));
    assert_eq!(add(&mut store, 1), ids[1], "the same result is kept once");
    drop(store);
    let store = Store::open_existing(&path).unwrap();
    let all = store.list(&RunFilter::default()).unwrap();
    let commands: Vec<_> = all.iter().map(|run| run.facts.command.as_str()).collect();
    assert_eq!(commands, ["horolog 1", "horolog 2", "horolog 3"], "by their starts");
    assert_eq!(all[0].facts, ResultFacts::parse(&text(1)).unwrap());
    assert_eq!(all[0].bytes, text(1).len() as u64);
    assert_eq!(store.result(all[2].id).unwrap(), text(3));
}

#[test]
fn lists_contain_what_was_requested() {
    let (_directory, path) = temporary_path();
    let mut store = Store::open(&path).unwrap();
    for number in 0..10 {
        add(&mut store, number);
    }
    let commands = |filter: RunFilter| {
        let all = store.list(&filter).unwrap();
        all.iter().map(|run| run.facts.command[8..].to_owned()).collect::<Vec<_>>()
    };
    let kind = Some("load".to_owned());
    assert_eq!(commands(RunFilter { kind, last: Some(2), ..RunFilter::default() }), ["6", "8"]);
    let since = Some("2026-01-02T03:00:07".to_owned());
    assert_eq!(commands(RunFilter { since, ..RunFilter::default() }), ["7", "8", "9"]);
    // Pattern characters are matched literally.
    for kind in ["l_ad", "%", "\\"] {
        assert!(
            commands(RunFilter { kind: Some(kind.to_owned()), ..RunFilter::default() }).is_empty()
        );
    }
}

#[test]
fn runs_are_found_by_what_they_are_called() {
    let (_directory, path) = temporary_path();
    let mut store = Store::open(&path).unwrap();
    let ids = [0, 1, 2].map(|number| add(&mut store, number));
    store.set_name(ids[0], Some("main")).unwrap();
    let find = |name: &str| store.find(&name.parse().unwrap()).map(|run| run.id);
    assert_eq!(find("last").unwrap(), ids[2]);
    assert_eq!(find("last~2").unwrap(), ids[0]);
    assert_eq!(find("main").unwrap(), ids[0]);
    assert_eq!(find(&ids[1].to_string()).unwrap(), ids[1]);
    let key = ResultFacts::parse(&text(1)).unwrap().key;
    assert_eq!(find(&key).unwrap(), ids[1]);
    assert_eq!(find(&key[..8]).unwrap(), ids[1]);
    for absent in ["last~3", "other", "99", "ffffffffffffffff"] {
        let error = find(absent).unwrap_err().to_string();
        assert!(error.contains(absent) && error.contains("runs list"), "{error}");
    }
}

#[test]
fn a_name_is_of_one_run() {
    let (_directory, path) = temporary_path();
    let mut store = Store::open(&path).unwrap();
    let ids = [0, 1].map(|number| add(&mut store, number));
    store.set_name(ids[0], Some("main")).unwrap();
    store.set_name(ids[0], Some("main")).unwrap();
    assert!(matches!(store.set_name(ids[1], Some("main")), Err(StoreError::NameTaken { .. })));
    store.set_name(ids[0], None).unwrap();
    store.set_name(ids[1], Some("main")).unwrap();
    assert_eq!(store.find(&"main".parse().unwrap()).unwrap().id, ids[1]);
    assert!(matches!(store.set_name(99, Some("x")), Err(StoreError::RunNotFound(_))));
}

#[test]
fn all_are_deleted_or_none() {
    let (_directory, path) = temporary_path();
    let mut store = Store::open(&path).unwrap();
    let ids = [0, 1, 2].map(|number| add(&mut store, number));
    assert!(matches!(store.delete(&[ids[0], 99]), Err(StoreError::RunNotFound(_))));
    assert_eq!(store.list(&RunFilter::default()).unwrap().len(), 3);
    store.delete(&ids[..2]).unwrap();
    assert!(
        matches!(store.result(ids[0]), Err(StoreError::RunNotFound(_))),
        "its result goes with it"
    );
    assert!(add(&mut store, 0) > ids[2], "no number is given twice");
}

#[test]
fn several_may_write_at_once() {
    for _ in 0..8 {
        together(25);
    }
}

/// Creates a store from four threads that write to it.
fn together(each: u64) {
    let (_directory, path) = temporary_path();
    let writer = |number: u64| {
        let path = path.clone();
        // Each opens it anew, as processes do, and all create it concurrently.
        thread::spawn(move || {
            for run in 0..each {
                add(&mut Store::open(&path).unwrap(), number * each + run);
            }
        })
    };
    for thread in [0, 1, 2, 3].map(writer) {
        thread.join().unwrap();
    }
    let store = Store::open_existing(&path).unwrap();
    assert_eq!(store.list(&RunFilter::default()).unwrap().len(), 4 * each as usize);
}

/// A file written by a program of the first version.
#[test]
fn an_older_store_is_read_and_written() {
    let (_directory, path) = temporary_path();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let old = Connection::open(&path).unwrap();
    old.execute_batch(include_str!("../testdata/version-1.sql")).unwrap();
    drop(old);
    let mut store = Store::open_existing(&path).unwrap();
    let run = store.find(&"main".parse().unwrap()).unwrap();
    let text = store.result(run.id).unwrap();
    assert_eq!(ResultFacts::parse(&text).unwrap(), run.facts);
    assert_eq!((run.id, run.bytes), (7, text.len() as u64));
    assert_eq!(add(&mut store, 0), 8);
}

#[test]
fn what_cannot_be_opened_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let error = Store::open(directory.path()).unwrap_err();
    assert!(matches!(error, StoreError::CannotOpen { .. }), "{error}");
}

#[test]
fn what_is_no_store_is_left_as_it_is() {
    let (_directory, path) = temporary_path();
    assert!(matches!(Store::open_existing(&path), Err(StoreError::Absent(_))));
    let mut store = Store::open(&path).unwrap();
    add(&mut store, 0);
    store.connection.pragma_update(None, "user_version", VERSION + 1).unwrap();
    drop(store);
    let error = Store::open(&path).unwrap_err();
    assert!(
        matches!(error, StoreError::NewerVersion { found, .. } if found == VERSION + 1),
        "{error}"
    );

    let other = path.with_file_name("other.db");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(matches!(Store::open(&other), Err(StoreError::Damaged { .. })));

    let text = path.with_file_name("text");
    let content =
        "not a database, but long enough that nobody takes it for an empty one".repeat(20);
    fs::write(&text, &content).unwrap();
    let error = Store::open(&text).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert_eq!(fs::read_to_string(&text).unwrap(), content);
}

#[test]
fn a_store_that_is_held_is_named() {
    let (_directory, path) = temporary_path();
    let mut store = Store::open(&path).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    store.connection.busy_timeout(Duration::ZERO).unwrap();
    let text = text(0);
    let error = store.add(&ResultFacts::parse(&text).unwrap(), &text).unwrap_err();
    assert!(matches!(error, StoreError::Locked(_)), "{error}");
    other.execute_batch("COMMIT").unwrap();
    add(&mut store, 0);
}

#[test]
fn a_damaged_result_is_reported() {
    let (_directory, path) = temporary_path();
    let mut store = Store::open(&path).unwrap();
    let id = add(&mut store, 0);
    store.connection.execute("UPDATE result SET packed = x'00'", []).unwrap();
    let error = store.result(id).unwrap_err().to_string();
    assert!(error.contains(&format!("run {id} in ")) && error.contains("damaged"), "{error}");
    // Another result, sound by itself, is not the stored one.
    let other = packing::pack(&text(1));
    store.connection.execute("UPDATE result SET packed = ?1", [other]).unwrap();
    let error = store.result(id).unwrap_err().to_string();
    assert!(error.contains("its key does not match"), "{error}");
}

#[test]
fn a_store_is_read_as_it_lies() {
    let (_directory, path) = temporary_path();
    let mut store = Store::open(&path).unwrap();
    let id = add(&mut store, 0);
    drop(store);
    let strange = path.with_file_name("a name with ?#% in it.db");
    fs::copy(&path, &strange).unwrap();
    let store = Store::open_read_only(&strange).unwrap();
    assert_eq!(store.result(id).unwrap(), text(0));
    assert_eq!(
        Store::open_read_only(&path.with_file_name("none.db"))
            .unwrap_err()
            .to_string()
            .lines()
            .count(),
        1
    );
    let old = path.with_file_name("old.db");
    Connection::open(&old)
        .unwrap()
        .pragma_update(None, "application_id", migration::APPLICATION_ID)
        .unwrap();
    assert!(matches!(
        Store::open_read_only(&old),
        Err(StoreError::OlderVersion { .. }
            | StoreError::Damaged { .. }
            | StoreError::NewerVersion { .. })
    ));
}

#[test]
fn a_full_store_keeps_what_it_has() {
    let (_directory, path) = temporary_path();
    let mut store = Store::open(&path).unwrap();
    add(&mut store, 0);
    let pages: i64 =
        store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    store
        .connection
        .pragma_update_and_check(None, "max_page_count", pages, |row| row.get::<_, i64>(0))
        .unwrap();
    // Incompressible text.
    let mut random = 1_u64;
    let noise: String = std::iter::repeat_with(|| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("{random:016x}")
    })
    .take(10_000)
    .collect();
    let text = text(1).replace("\"findings\"", &format!("\"noise\":\"{noise}\",\"findings\""));
    let error = store.add(&ResultFacts::parse(&text).unwrap(), &text).unwrap_err();
    assert!(matches!(error, StoreError::NoSpace(_)), "{error}");
    assert_eq!(store.list(&RunFilter::default()).unwrap().len(), 1);
}
