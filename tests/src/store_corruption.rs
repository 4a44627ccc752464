//! Scenarios of damaged and inaccessible stores: a damaged run among valid ones, a store that
//! cannot be written, and a user without a home directory.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use horolog_record::StoredRunList;
use rusqlite::Connection;

use crate::process::{binary, run_to_end};
use crate::runs::{SIMULATE_COMMAND, TIMEOUT, TestStore, only_result_in};
use crate::scenario::{Need, Scenario};
use crate::{scenarios, store_corruption};

/// Number of a user without an account, hence without a home directory.
const UNKNOWN_USER: &str = "987654";

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(&[], store_corruption:
        a_damaged_run_is_named_and_the_others_are_exported,
    ));
    all.extend(
        scenarios!(&[Need::Root, Need::Peer("unshare"), Need::Peer("setpriv")], store_corruption:
            a_read_only_store_is_read,
            a_store_on_a_full_file_system_is_read,
            a_missing_store_directory_is_reported,
        ),
    );
    all
}

/// A run with the packed result of another, as a disk error may cause, is unreadable; the other
/// runs are exported.
fn a_damaged_run_is_named_and_the_others_are_exported() -> Result<()> {
    let test_store = TestStore::new()?;
    for seed in ["1", "2", "3"] {
        test_store.measure(&["--seed", seed])?;
    }
    let store = Connection::open(test_store.store())?;
    let damage =
        "UPDATE result SET packed = (SELECT packed FROM result WHERE run = 3) WHERE run = 2";
    ensure!(store.execute(damage, [])? == 1);
    for command in [&["runs", "show", "2"][..], &["runs", "compare", "1", "2"], &["report", "2"]] {
        test_store.check_refused(command, 3, "run 2 in ")?;
    }
    let file = test_store.path("all.jsonl").display().to_string();
    let output = test_store.horolog(&["runs", "export", "-o", &file])?;
    let stderr = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(3), "{stderr}");
    ensure!(
        stderr.contains("run 2 in ") && stderr.contains("1 of 3 runs are unreadable"),
        "{stderr}"
    );
    ensure!(fs::read_to_string(&file)?.lines().count() == 2);
    // The export can be imported into another store.
    let other = test_store.path("other.sqlite").display().to_string();
    let output = test_store.horolog(&["runs", "import", &file, "--store", &other])?;
    ensure!(output.status.success(), "{output:?}");
    ensure!(test_store.horolog(&["runs", "delete", "2"])?.status.success());
    let none = test_store.horolog(&["runs", "export", "-o", &file, "--kind", "none"])?;
    ensure!(none.status.success() && String::from_utf8(none.stderr)?.contains("no matching runs"));
    Ok(())
}

/// On a read-only file system, the files that SQLite keeps with a store cannot be written either.
fn a_read_only_store_is_read() -> Result<()> {
    let test_store = TestStore::new()?;
    test_store.measure(&[])?;
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\"; \
                  shift && exec \"$@\"";
    let run_in_namespace = |arguments: &[&str]| -> Result<Output> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(test_store.directory.path());
        command.arg(binary()?).args(arguments).arg("--store").arg(test_store.store());
        run_to_end(&mut command, TIMEOUT)
    };
    check_read_only(run_in_namespace, "mounted read-only")
}

/// On a full file system, SQLite cannot create the files that it keeps with a store.
fn a_store_on_a_full_file_system_is_read() -> Result<()> {
    let test_store = TestStore::new()?;
    test_store.measure(&[])?;
    let full = test_store.path("full");
    fs::create_dir(&full)?;
    let script = "mount -t tmpfs -o size=1m none \"$1\" && cp \"$2\" \"$1/runs.sqlite\" && \
                  { head -c 2M /dev/zero > \"$1/all\"; true; } 2> /dev/null; \
                  store=$1/runs.sqlite; shift 2 && exec \"$@\" --store \"$store\"";
    let run_in_namespace = |arguments: &[&str]| -> Result<Output> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(&full).arg(test_store.store());
        command.arg(binary()?).args(arguments);
        run_to_end(&mut command, TIMEOUT)
    };
    check_read_only(run_in_namespace, "no space left")
}

/// Checks that the only run of a store is listed and shown, and cannot be deleted, for `reason`.
fn check_read_only(
    run_in_namespace: impl Fn(&[&str]) -> Result<Output>,
    reason: &str,
) -> Result<()> {
    let output = run_in_namespace(&["runs", "list", "--json", "-"])?;
    ensure!(output.status.success(), "{output:?}");
    let list: StoredRunList = serde_json::from_slice(&output.stdout)?;
    ensure!(list.runs.len() == 1, "{list:?}");
    let output = run_in_namespace(&["runs", "show", "last"])?;
    ensure!(output.status.success() && !output.stdout.is_empty(), "{output:?}");
    let output = run_in_namespace(&["runs", "delete", "last"])?;
    let stderr = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(3) && stderr.contains(reason), "{stderr}");
    Ok(())
}

fn a_missing_store_directory_is_reported() -> Result<()> {
    let test_store = TestStore::new()?;
    fs::set_permissions(test_store.directory.path(), Permissions::from_mode(0o777))?;
    // The user may have no access to the built program, hence a copy.
    let program = test_store.path("horolog");
    fs::copy(binary()?, &program)?;
    let measure_as_user = |name: &str, store: Option<&str>| -> Result<String> {
        let working_directory = test_store.path(name);
        fs::create_dir(&working_directory)?;
        fs::set_permissions(&working_directory, Permissions::from_mode(0o777))?;
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", UNKNOWN_USER, "--regid", UNKNOWN_USER, "--clear-groups"])
            .arg(&program);
        command.args(SIMULATE_COMMAND).current_dir(&working_directory);
        for name in ["HOME", "XDG_DATA_HOME", "HOROLOG_STORE"] {
            command.env_remove(name);
        }
        command.envs(store.map(|store| ("HOROLOG_STORE", store)));
        let output = run_to_end(&mut command, TIMEOUT)?;
        let stderr = String::from_utf8(output.stderr)?;
        ensure!(output.status.success() && !output.stdout.is_empty(), "{stderr}");
        Ok(stderr)
    };
    // An empty variable counts as unset.
    for (name, store) in [("unset", None), ("empty", Some(""))] {
        let stderr = measure_as_user(name, store)?;
        ensure!(stderr.contains("no home directory") && stderr.lines().count() == 1, "{stderr}");
        ensure!(only_result_in(&test_store.path(name))?["schema"] == "horolog.clock/2");
    }
    ensure!(
        measure_as_user("none", Some("none"))?.is_empty(),
        "a message although no store is wanted"
    );
    Ok(())
}
