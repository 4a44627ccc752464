//! Scenarios of the store: results that commands store, show, compare, export and import, and
//! results that a store does not accept.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_record::{CompareVerdict, RunsCompareResult, STORE_VARIABLE, StoredRunList};
use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{binary, run_to_end};
use crate::scenario::{Need, Scenario};
use crate::{runs, scenarios};

pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);
/// Directory with a sample result of each kind.
const SAMPLES: &str = concat!(env!("HOROLOG_REPOSITORY"), "crates/record/samples");
/// Arguments of a simulation, which yields a result at once.
pub(crate) const SIMULATE_COMMAND: [&str; 4] = ["clock", "simulate", "--duration", "10m"];

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(&[], runs:
        results_are_stored_and_shown_again,
        several_commands_store_at_once,
        results_of_every_kind_are_stored_shown_and_exported,
        a_worse_run_ends_in_status_1,
        unreadable_results_are_reported,
        results_of_another_version_are_shown_as_far_as_possible,
        an_invalid_field_is_named_with_its_path,
        a_run_without_trials_is_shown,
        a_locked_store_loses_no_result,
        a_store_of_a_newer_version_is_not_changed,
        a_damaged_store_loses_no_result,
    ));
    all.extend(scenarios!(&[Need::Root, Need::Peer("unshare")], runs:
        a_full_disk_loses_no_result,
    ));
    all
}

/// Store in a temporary directory.
pub(crate) struct TestStore {
    pub(crate) directory: TempDir,
}

impl TestStore {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { directory: TempDir::new()? })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path("runs.sqlite")
    }

    fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<Command> {
        let mut command = Command::new(binary()?);
        command.args(arguments).env(STORE_VARIABLE, self.store());
        Ok(command)
    }

    pub(crate) fn horolog<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<Output> {
        run_to_end(&mut self.command(arguments)?, TIMEOUT)
    }

    fn list(&self) -> Result<StoredRunList> {
        let output = self.horolog(&["runs", "list", "--json", "-"])?;
        ensure!(output.status.success(), "{output:?}");
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    pub(crate) fn measure(&self, more: &[&str]) -> Result<Output> {
        let output = self.horolog(&[&SIMULATE_COMMAND, more].concat())?;
        ensure!(output.status.success(), "{output:?}");
        Ok(output)
    }

    /// Checks that the command ends with `status` and one line on stderr that contains `words`.
    pub(crate) fn check_refused<S: AsRef<OsStr>>(
        &self,
        arguments: &[S],
        status: i32,
        words: &str,
    ) -> Result<()> {
        let output = self.horolog(arguments)?;
        let stderr = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(status), "{words}: {:?} {stderr}", output.status);
        ensure!(stderr.lines().count() == 1 && stderr.contains(words), "{words}: {stderr}");
        Ok(())
    }
}

fn results_are_stored_and_shown_again() -> Result<()> {
    let test_store = TestStore::new()?;
    ensure!(test_store.list()?.runs.is_empty());
    let json = test_store.path("result.json");
    let name = json.to_string_lossy().into_owned();
    let text = test_store.measure(&["--json", &name])?.stdout;
    test_store.measure(&["--no-store"])?;
    let runs = test_store.list()?.runs;
    ensure!(runs.len() == 1 && runs[0].kind == "horolog.clock/2", "{runs:?}");
    let shown = test_store.horolog(&["runs", "show"])?;
    ensure!(shown.stdout == text, "{}", String::from_utf8_lossy(&shown.stdout));
    let stored: Value =
        serde_json::from_slice(&test_store.horolog(&["runs", "show", "1", "--json", "-"])?.stdout)?;
    ensure!(stored == serde_json::from_slice::<Value>(&fs::read(&json)?)?);
    test_store.measure(&[])?;
    for arguments in [&["runs", "name", "1", "main"][..], &["runs", "delete", "last"]] {
        let output = test_store.horolog(arguments)?;
        ensure!(output.status.success(), "{output:?}");
    }
    let runs = test_store.list()?.runs;
    ensure!(runs.len() == 1 && runs[0].name.as_deref() == Some("main"), "{runs:?}");
    let page = test_store.path("page.html");
    let name = page.to_string_lossy().into_owned();
    let output = test_store.horolog(&["runs", "show", "main", "--html", &name])?;
    ensure!(output.status.success() && fs::read_to_string(&page)?.contains("</html>"));
    for (arguments, words) in [
        (&["runs", "show", "7"][..], "run '7' not found"),
        (&["runs", "show", "last~1"], "run 'last~1' not found"),
        (&["runs", "show", "a b"], "invalid run"),
        (&["runs", "name", "main", "last"], "starting with a letter"),
        (&["runs", "delete", "main", "7"], "run '7' not found"),
        (&["runs", "compare", "main"], "give two runs"),
        (&["runs", "export"], "--format"),
        (&["runs", "list", "--since", "today"], "2026-01-31"),
    ] {
        test_store.check_refused(arguments, 2, words)?;
    }
    ensure!(test_store.list()?.runs.len() == 1, "a run was deleted with an unknown one");
    Ok(())
}

fn several_commands_store_at_once() -> Result<()> {
    const COUNT: usize = 12;
    let test_store = TestStore::new()?;
    let started = (0..COUNT).map(|seed| {
        let mut command = test_store.command(&SIMULATE_COMMAND)?;
        command.args(["--seed", &seed.to_string()]);
        Ok(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?)
    });
    let started = started.collect::<Result<Vec<_>>>()?;
    for child in started {
        let output = child.wait_with_output()?;
        ensure!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
    ensure!(test_store.list()?.runs.len() == COUNT, "{:?}", test_store.list()?);
    Ok(())
}

/// Returns the samples that are results of runs.
pub(crate) fn samples() -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(SAMPLES)? {
        let path = entry?.path();
        if path.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
        let result: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        if result["schema"].is_string() && result["started"].is_string() {
            files.push(path);
        }
    }
    files.sort();
    ensure!(files.len() > 20, "{files:?}");
    Ok(files)
}

fn results_of_every_kind_are_stored_shown_and_exported() -> Result<()> {
    let test_store = TestStore::new()?;
    let files = samples()?;
    let import = |files: &[PathBuf]| {
        let mut command = test_store.command(&["runs", "import"])?;
        let output = run_to_end(command.args(files), TIMEOUT)?;
        ensure!(output.status.success(), "{output:?}");
        Ok(String::from_utf8(output.stderr)?)
    };
    ensure!(
        import(&files)?
            .contains(&format!("{} results were imported; already stored: 0", files.len()))
    );
    let lines = test_store.path("all.jsonl").to_string_lossy().into_owned();
    ensure!(test_store.horolog(&["runs", "export", "-o", &lines])?.status.success());
    let again = import(&[lines.clone().into()])?;
    ensure!(again.contains("0 results were imported"), "results are imported twice: {again}");
    let csv = test_store.horolog(&["runs", "export", "--format", "csv"])?;
    let csv = String::from_utf8(csv.stdout)?;
    ensure!(csv.starts_with("run,name,schema,started,command,path,value\n"));
    let parquet = test_store.horolog(&["runs", "export", "--format", "parquet"])?;
    let is_whole = parquet.stdout.starts_with(b"PAR1") && parquet.stdout.ends_with(b"PAR1");
    ensure!(parquet.status.success() && is_whole, "{:?}", parquet.stderr);
    let file = test_store.path("all.parquet");
    ensure!(
        test_store
            .horolog(&["runs".as_ref(), "export".as_ref(), "-o".as_ref(), file.as_os_str()])?
            .status
            .success()
    );
    ensure!(fs::read(&file)? == parquet.stdout, "the outputs of -o and stdout differ");
    for run in test_store.list()?.runs {
        let id = run.id.to_string();
        let shown = test_store.horolog(&["runs", "show", &id])?;
        ensure!(shown.status.success() && !shown.stdout.is_empty(), "{run:?}: {shown:?}");
        let same = test_store.horolog(&["runs", "compare", &id, &id, "--json", "-"])?;
        let result: RunsCompareResult = serde_json::from_slice(&same.stdout)?;
        let worse = result.metrics.iter().any(|figure| figure.verdict == CompareVerdict::Worse);
        ensure!(!worse && same.status.code() != Some(1), "{run:?}: {result:?}");
    }
    Ok(())
}

/// Writes a load result whose trials have 20,000 RTT values from `rtt_min_ns` to 1 µs more; returns
/// its path.
fn write_load_result(test_store: &TestStore, name: &str, rtt_min_ns: u64) -> Result<String> {
    let mut histogram = horolog_stats::Histogram::new();
    for number in 0..20_000 {
        histogram.record(rtt_min_ns + number % 1_000);
    }
    let distribution =
        horolog_record::Distribution::from_histogram(&histogram).context("empty histogram")?;
    let mut result: Value =
        serde_json::from_str(&fs::read_to_string(format!("{SAMPLES}/load.json"))?)?;
    for trial in result["trials"].as_array_mut().context("no trials in the sample")? {
        trial["rtt_ns"] = serde_json::to_value(&distribution)?;
    }
    let path = test_store.path(name);
    fs::write(&path, serde_json::to_string(&result)?)?;
    Ok(path.to_string_lossy().into_owned())
}

fn a_worse_run_ends_in_status_1() -> Result<()> {
    let test_store = TestStore::new()?;
    let [before, slower] = [
        write_load_result(&test_store, "a.json", 50_000)?,
        write_load_result(&test_store, "b.json", 80_000)?,
    ];
    let compare = |more: &[&str]| test_store.horolog(&[&["runs", "compare"], more].concat());
    let worse = compare(&[&before, &slower])?;
    let stdout = String::from_utf8(worse.stdout)?;
    ensure!(worse.status.code() == Some(1) && stdout.contains("worse"), "{stdout}");
    ensure!(String::from_utf8(worse.stderr)?.contains("worse by more than 10.00%"));
    let allowed = compare(&[&before, &slower, "--threshold", "90%"])?;
    ensure!(allowed.status.success(), "{allowed:?}");
    let better = compare(&[&slower, "--baseline", &slower])?;
    ensure!(better.status.success(), "{better:?}");
    let better = compare(&[&slower, &before])?;
    ensure!(better.status.success() && String::from_utf8(better.stdout)?.contains("better"));
    test_store.check_refused(
        &["runs", "compare", &before, &format!("{SAMPLES}/query.json")],
        2,
        "one kind",
    )?;
    Ok(())
}

fn unreadable_results_are_reported() -> Result<()> {
    let test_store = TestStore::new()?;
    test_store.measure(&[])?;
    let whole = fs::read_to_string(format!("{SAMPLES}/load.json"))?;
    for (name, text, words) in [
        ("cut.json", &whole[..whole.len() / 2], "starts as a result 'horolog.load/2'"),
        ("cut.json", &whole[..whole.len() / 2], "complete fields: command, "),
        ("empty.json", "", "it is truncated"),
        ("words.json", "words", "not JSON"),
        ("other.json", "{\"schema\": \"other/1\"}", "not a result of horolog"),
    ] {
        let path = test_store.path(name);
        fs::write(&path, text)?;
        let path = path.to_string_lossy().into_owned();
        test_store.check_refused(&["runs", "show", &path], 3, words)?;
        test_store.check_refused(&["runs", "import", &path], 3, words)?;
    }
    let lines = whole.replace('\n', " ");
    let path = test_store.path("cut.jsonl");
    fs::write(&path, format!("{lines}\n{lines}\n{}", &lines[..lines.len() / 2]))?;
    let path = path.to_string_lossy().into_owned();
    test_store.check_refused(&["runs", "import", &path], 3, "line 3: ")?;
    test_store.check_refused(&["runs", "import", &path], 3, "sound results before it: 2")?;
    ensure!(test_store.list()?.runs.len() == 1, "results of a truncated file were imported");
    Ok(())
}

/// Writes a changed load result and returns its path.
fn write_changed_result(
    test_store: &TestStore,
    name: &str,
    change: impl FnOnce(&mut Value),
) -> Result<String> {
    let mut result = serde_json::from_str(&fs::read_to_string(format!("{SAMPLES}/load.json"))?)?;
    change(&mut result);
    let path = test_store.path(name);
    fs::write(&path, serde_json::to_string(&result)?)?;
    Ok(path.to_string_lossy().into_owned())
}

fn results_of_another_version_are_shown_as_far_as_possible() -> Result<()> {
    let test_store = TestStore::new()?;
    let page = test_store.path("page.html").to_string_lossy().into_owned();
    for (stored, version) in [1, 3].into_iter().enumerate() {
        let schema = format!("horolog.load/{version}");
        let file = write_changed_result(&test_store, &format!("{version}.json"), |result| {
            result["schema"] = schema.clone().into();
            // Missing and renamed fields of another version do not matter.
            result.as_object_mut().map(|fields| fields.remove("trials"));
        })?;
        let made = [&["report", &file, "-o", &page][..], &["runs", "show", &file, "--html", &page]];
        for arguments in [&["runs", "show", &file][..], made[0], made[1]] {
            let shown = test_store.horolog(arguments)?;
            let stderr = String::from_utf8(shown.stderr)?;
            let reason =
                format!("its schema is '{schema}', and this version reads 'horolog.load/2'");
            ensure!(shown.status.code() == Some(3) && stderr.contains(&reason), "{stderr}");
            let text = String::from_utf8(shown.stdout)?;
            let findings = text.lines().skip(1).filter(|line| line.starts_with("warning: "));
            ensure!(text.starts_with(&format!("{schema}, started 20")), "{text}");
            ensure!(findings.count() > 0, "the findings are not shown: {text}");
        }
        let compared = test_store.horolog(&["runs", "compare", &file, &file])?;
        let stderr = String::from_utf8(compared.stderr)?;
        let reason = format!("its schema is '{schema}', and this version reads 'horolog.load/2'");
        ensure!(compared.status.code() == Some(3) && stderr.contains(&reason), "{stderr}");
        ensure!(!Path::new(&page).exists(), "a report of an unknown version was written");
        // The document is imported as it is, for programs of that version.
        ensure!(test_store.horolog(&["runs", "import", &file])?.status.success());
        let exported = test_store.horolog(&["runs", "export", "last", "--format", "jsonl"])?;
        let original: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
        ensure!(serde_json::from_slice::<Value>(&exported.stdout)? == original, "export differs");
        let runs = test_store.list()?.runs;
        ensure!(runs.len() == stored + 1 && runs.iter().any(|run| run.kind == schema), "{runs:?}");
    }
    Ok(())
}

fn an_invalid_field_is_named_with_its_path() -> Result<()> {
    let test_store = TestStore::new()?;
    let file = write_changed_result(&test_store, "odd.json", |result| {
        result["trials"][0]["sent"] = "many".into();
    })?;
    for arguments in [&["runs", "show", &file][..], &["report", &file, "-o", "/dev/null"]] {
        let output = test_store.horolog(arguments)?;
        let stderr = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(3) && stderr.lines().count() == 1, "{stderr}");
        ensure!(stderr.contains("trials[0].sent: invalid type: string \"many\""), "{stderr}");
        let shown = output.stdout.starts_with(b"horolog.load/2, started ");
        ensure!(shown, "the valid fields are not shown");
    }
    Ok(())
}

fn a_run_without_trials_is_shown() -> Result<()> {
    let test_store = TestStore::new()?;
    let file = write_changed_result(&test_store, "empty.json", |result| {
        for list in ["trials", "findings", "limits"] {
            result[list] = Vec::<Value>::new().into();
        }
        for part in ["search", "series", "overload"] {
            result.as_object_mut().map(|fields| fields.remove(part));
        }
    })?;
    let shown = test_store.horolog(&["runs", "show", &file])?;
    let text = String::from_utf8(shown.stdout)?;
    ensure!(shown.status.success() && text.contains("No trials were run."), "{text}");
    let page = test_store.path("page.html").to_string_lossy().into_owned();
    ensure!(test_store.horolog(&["report", &file, "-o", &page])?.status.success());
    ensure!(fs::read_to_string(&page)?.contains("not measured"));
    ensure!(test_store.horolog(&["runs", "import", &file])?.status.success());
    test_store.check_refused(&["runs", "compare", "1", &file], 3, "no common metrics")
}

/// Reads the only result in `directory`.
pub(crate) fn only_result_in(directory: &Path) -> Result<Value> {
    let files = fs::read_dir(directory)?.collect::<std::io::Result<Vec<_>>>()?;
    let is_result = |name: &str| name.starts_with("horolog-");
    let mut found = files.iter().filter(|file| is_result(&file.file_name().to_string_lossy()));
    let file = found.next().with_context(|| format!("no result among {files:?}"))?;
    ensure!(found.next().is_none(), "{files:?}");
    Ok(serde_json::from_str(&fs::read_to_string(file.path())?)?)
}

fn a_locked_store_loses_no_result() -> Result<()> {
    let test_store = TestStore::new()?;
    test_store.measure(&[])?;
    let holder = Connection::open(test_store.store())?;
    holder.execute_batch("BEGIN IMMEDIATE")?;
    let output = test_store.measure(&["--seed", "2"])?;
    let stderr = String::from_utf8(output.stderr)?;
    ensure!(
        stderr.contains("is locked by another program") && stderr.lines().count() == 1,
        "{stderr}"
    );
    ensure!(!output.stdout.is_empty(), "the result is not shown");
    ensure!(only_result_in(test_store.directory.path())?["schema"] == "horolog.clock/2");
    ensure!(test_store.list()?.runs.len() == 1, "the locked store cannot be read");
    test_store.check_refused(
        &["runs", "delete", "last"],
        3,
        "is locked by another program; try again",
    )?;
    holder.execute_batch("COMMIT")?;
    ensure!(test_store.horolog(&["runs", "delete", "last"])?.status.success());
    Ok(())
}

fn a_store_of_a_newer_version_is_not_changed() -> Result<()> {
    let test_store = TestStore::new()?;
    test_store.measure(&[])?;
    Connection::open(test_store.store())?.pragma_update(None, "user_version", 99)?;
    let before = fs::read(test_store.store())?;
    let output = test_store.measure(&[])?;
    let stderr = String::from_utf8(output.stderr)?;
    ensure!(stderr.contains("has version 99") && stderr.lines().count() == 1, "{stderr}");
    ensure!(only_result_in(test_store.directory.path())?["schema"] == "horolog.clock/2");
    test_store.check_refused(
        &["runs", "list"],
        3,
        "has version 99, and this program supports 2",
    )?;
    ensure!(fs::read(test_store.store())? == before, "the store was changed");
    Ok(())
}

fn a_damaged_store_loses_no_result() -> Result<()> {
    let test_store = TestStore::new()?;
    test_store.measure(&[])?;
    let mut bytes = fs::read(test_store.store())?;
    let middle = bytes.len() / 2;
    bytes[100..middle].fill(0x55);
    fs::write(test_store.store(), &bytes)?;
    let output = test_store.measure(&[])?;
    let stderr = String::from_utf8(output.stderr)?;
    ensure!(stderr.contains("not kept as a run") && stderr.contains("damaged"), "{stderr}");
    ensure!(stderr.lines().count() == 1 && !output.stdout.is_empty(), "{stderr}");
    ensure!(only_result_in(test_store.directory.path())?["schema"] == "horolog.clock/2");
    test_store.check_refused(&["runs", "list"], 3, "damaged")?;
    let directory = test_store.path("directory").to_string_lossy().into_owned();
    fs::create_dir(&directory)?;
    test_store.check_refused(&["runs", "list", "--store", &directory], 3, "it is a directory")
}

fn a_full_disk_loses_no_result() -> Result<()> {
    let test_store = TestStore::new()?;
    let [disk, here] = [test_store.path("disk"), test_store.path("here")];
    for directory in [&disk, &here] {
        fs::create_dir(directory)?;
    }
    let script = "mount -t tmpfs -o size=64k none \"$1\" && head -c 60k /dev/zero > \"$1/all\"; \
                  cd \"$2\" && shift 2 && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).args([&disk, &here]).arg(binary()?);
    command.args(SIMULATE_COMMAND).args(["--store"]).arg(disk.join("runs.sqlite"));
    let output = run_to_end(&mut command, TIMEOUT)?;
    let stderr = String::from_utf8(output.stderr)?;
    ensure!(output.status.success() && !output.stdout.is_empty(), "{stderr}");
    ensure!(stderr.contains("no space left") && stderr.lines().count() == 1, "{stderr}");
    ensure!(only_result_in(&here)?["schema"] == "horolog.clock/2");
    Ok(())
}
