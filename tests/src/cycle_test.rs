//! Scenarios of `horolog cycle test`: every injected fault is detected as its kind, nodes that
//! stop, slow down or end are named and recovered from, the load search converges, and no process
//! is left.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_record::{
    CycleTestDetectionKind as Detection, CycleTestFaultResult, CycleTestGrade, CycleTestResult,
    CycleTestRunResult, FindingCode, ScorecardCriterion, SearchEndReason,
};
use horolog_sys::namespace::die_with_parent;
use tempfile::TempDir;

use crate::launch_after::processes;
use crate::process::{binary, run_to_end, signal, wait_until};
use crate::scenario::{Queue, Scenario, scenario};
use crate::usage_error::{self, USAGE};
use crate::{cycle_test, scenarios};

/// Timeout of a command; a search makes many runs.
const TIMEOUT: Duration = Duration::from_mins(3);
/// Sample results of another machine, with all optional values present.
const SAMPLES: &str = concat!(env!("HOROLOG_REPOSITORY"), "crates/record/samples");
/// Test of two stages and two sources with a low load, since other scenarios run on the machine.
const TEST: &str = "schema = \"horolog.test/2\"\nname = \"small\"\ntime = \"6s\"\nperiod = \"50ms\"\n\
    [[stage]]\nname = \"intake\"\nintake = true\nper-report = \"5us\"\n\
    [[stage]]\nname = \"meet\"\ncompute = \"1ms\"\nmessage = 2000\nbarrier = true\n\
    wait = \"20ms\"\n\
    [[source]]\nname = \"radar\"\nrate = 400\nsize = \"60..300\"\nlate-after = \"400ms\"\n\
    [[source]]\nname = \"orders\"\nprofile = \"poisson\"\nrate = 50\nsize = 64\nto = \"all\"\n\
    late-after = \"400ms\"\n";

pub(crate) fn all() -> Vec<Scenario> {
    let search = scenario("cycle_test::a_load_is_found", &[], a_load_is_found);
    let mut all = vec![search.in_queue(Queue::Exclusive)];
    all.extend(scenarios!(&[], cycle_test:
        faults_injected_into_reports_are_detected,
        a_stopped_node_is_detected_and_recovered_from,
        a_slow_node_is_named_and_an_exited_one_is_gone,
        an_interrupted_test_leaves_nothing,
        invalid_tests_are_refused,
    ));
    all
}

fn test(arguments: &[&str]) -> Result<Output> {
    run_to_end(Command::new(binary()?).args(["cycle", "test"]).args(arguments), TIMEOUT)
}

fn write(directory: &TempDir, name: &str, text: &str) -> Result<String> {
    let path = directory.path().join(name);
    fs::write(&path, text)?;
    Ok(path.to_str().context("no text")?.to_owned())
}

fn fault_table(lines: &str) -> String {
    format!("[[fault]]\n{lines}\n")
}

fn run_to_result(faults: &[&str], more: &[&str]) -> Result<CycleTestResult> {
    let directory = TempDir::new()?;
    let faults: Vec<String> = faults.iter().map(|lines| fault_table(lines)).collect();
    let file = write(&directory, "test.toml", &[TEST, &faults.concat()].concat())?;
    let output = test(&[&[&*file, "--json", "-"], more].concat())?;
    ensure!(output.status.success(), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn run(result: &CycleTestResult) -> Result<&CycleTestRunResult> {
    result.run.as_ref().context("no run")
}

fn detections_of_kind(run: &CycleTestRunResult, kind: Detection) -> u64 {
    run.detections.iter().filter(|one| one.kind == kind).map(|one| one.count).sum()
}

/// Returns the recovery time of `fault`, in ns; an error if it is missing or 3 s or longer.
fn recovery_ns(fault: &CycleTestFaultResult) -> Result<u64> {
    let after_ns = fault.recovered_after_ns.with_context(|| format!("{fault:?}"))?;
    ensure!(after_ns < 3_000_000_000, "{fault:?}");
    Ok(after_ns)
}

/// Detections equal the injected faults of each kind; on a busy machine, a few more reports are
/// late.
fn faults_injected_into_reports_are_detected() -> Result<()> {
    let result = run_to_result(
        &[
            "kind = \"data-error\"\nat = \"1s\"\nfor = \"1s\"\nsource = \"radar\"\nshare = 0.2",
            "kind = \"lost\"\nat = \"2500ms\"\nfor = \"500ms\"\nshare = 0.2",
            "kind = \"late\"\nat = \"3500ms\"\nfor = \"500ms\"\nsource = \"radar\"\nshare = 0.1\n\
             delay = \"700ms\"\nstate = \"late reports\"",
        ],
        &[],
    )?;
    let run = run(&result)?;
    let [damaged, lost, late] = &run.faults[..] else { anyhow::bail!("three faults") };
    for (fault, kind, least) in [
        (damaged, Detection::DataError, 40),
        (lost, Detection::Lost, 20),
        (late, Detection::Late, 5),
    ] {
        ensure!(fault.injected >= least, "{fault:?}");
        let detected = detections_of_kind(run, kind);
        let is_exact = detected == fault.injected && fault.detection_count(kind) == fault.injected;
        let may_be_more = kind == Detection::Late && detected >= fault.injected;
        ensure!(is_exact || may_be_more, "{detected} detections of {fault:?}");
        let first = fault.detected.as_ref().with_context(|| format!("{fault:?}"))?;
        ensure!(first.kind == kind, "{first:?}");
    }
    let sources: u64 = run.sources.iter().map(|source| source.due - source.sent).sum();
    ensure!(sources == lost.injected, "{:?}", run.sources);
    let state = run.states.iter().find(|state| state.name == "late reports");
    ensure!(state.is_some_and(|state| state.periods == 20), "{:?}", run.states);
    Ok(())
}

fn a_stopped_node_is_detected_and_recovered_from() -> Result<()> {
    let result = run_to_result(
        &[
            "kind = \"stop\"\nat = \"1s\"\nfor = \"600ms\"\nnode = 2",
            "kind = \"lost-message\"\nat = \"4s\"\nfor = \"500ms\"\nnode = 1",
        ],
        &[],
    )?;
    let run = run(&result)?;
    let [stop, lost] = &run.faults[..] else { anyhow::bail!("two faults") };
    ensure!(stop.injected == 1 && stop.of.as_deref() == Some("node2"), "{stop:?}");
    ensure!(stop.detection_count(Detection::NodeTimeout) >= 1, "{stop:?}");
    ensure!(stop.detection_count(Detection::DeadlineMissed) >= 8, "{stop:?}");
    ensure!(stop.detected.as_ref().is_some_and(|first| first.after_ns < 500_000_000), "{stop:?}");
    ensure!(recovery_ns(stop)? > 0, "{stop:?}");
    // All ten periods of the 500 ms, and only the other node misses the messages.
    let misses = lost.detection_count(Detection::MessageMissing);
    ensure!(lost.injected == 10 && misses == 10, "{lost:?}");
    ensure!(lost.detected.as_ref().is_some_and(|first| first.by == "node2"), "{lost:?}");
    recovery_ns(lost).map(drop)
}

fn a_slow_node_is_named_and_an_exited_one_is_gone() -> Result<()> {
    let result = run_to_result(
        &[
            "kind = \"slow\"\nat = \"1s\"\nfor = \"500ms\"\nnode = 2\nfactor = 16",
            "kind = \"end\"\nat = \"4s\"\nnode = 1",
        ],
        &[],
    )?;
    let run = run(&result)?;
    let [slow, end] = &run.faults[..] else { anyhow::bail!("two faults") };
    ensure!(slow.injected == 10, "{slow:?}");
    let stragglers = run.detections.iter().filter(|one| one.kind == Detection::StragglerNode);
    let straggler = stragglers.max_by_key(|one| one.count).context("no straggler was detected")?;
    ensure!(straggler.of.as_deref() == Some("node2") && straggler.count >= 5, "{straggler:?}");
    recovery_ns(slow)?;
    ensure!(end.injected == 1 && end.detection_count(Detection::NodeTimeout) == 1, "{end:?}");
    recovery_ns(end)?;
    let [first, second] = &run.nodes[..] else { anyhow::bail!("two nodes") };
    ensure!(first.ended.is_some() && first.periods < 90, "{first:?}");
    ensure!(second.ended.is_none() && second.periods == 120, "{second:?}");
    let is_lost = result.findings.iter().any(|one| one.code == FindingCode::NodeLost);
    ensure!(!is_lost, "an injected end is reported as a lost node");
    Ok(())
}

/// A load of 40 computes for 40 ms of each 50 ms period, a load of 64 for more than 50 ms.
fn a_load_is_found() -> Result<()> {
    let result = run_to_result(
        &[],
        &[
            "--search",
            "--search-range",
            "1-64",
            "--search-width",
            "50%",
            "--trial-time",
            "500ms",
            "--load-min",
            "1",
            "--measured",
            &format!("{SAMPLES}/host_all.json"),
        ],
    )?;
    let search = result.search.as_ref().context("no search")?;
    let (lower, upper) = search.lower.zip(search.upper).with_context(|| format!("{search:?}"))?;
    ensure!(search.end == SearchEndReason::Converged, "{search:?}");
    ensure!((1.0..upper).contains(&lower) && upper <= 64.0, "{search:?}");
    let missed = |load: f64| {
        let at = search.trials.iter().filter(move |trial| (trial.load / load - 1.0).abs() < 1e-6);
        at.map(|trial| trial.missed).collect::<Vec<_>>()
    };
    ensure!(missed(upper).iter().any(|missed| *missed > 0), "{search:?}");
    ensure!(missed(lower).contains(&0), "{search:?}");
    let grade = |scale| {
        let row = result.scorecard.iter().find(|row| row.scale == scale);
        row.and_then(|row| row.grade)
    };
    ensure!(grade(ScorecardCriterion::SwitchTime).is_some(), "{:?}", result.scorecard);
    ensure!(
        grade(ScorecardCriterion::Granularity) < Some(CycleTestGrade::Poor),
        "granularity is poor although computation dominates"
    );
    ensure!(
        result.findings.iter().any(|one| one.code == FindingCode::CostFromOtherMachine),
        "no finding that costs are of another machine"
    );
    Ok(())
}

fn an_interrupted_test_leaves_nothing() -> Result<()> {
    let mut command = Command::new(binary()?);
    command.args(["cycle", "test", "--json", "-"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let tested = die_with_parent(&mut command).spawn()?;
    let leader = tested.id();
    let nodes = || -> Result<Vec<u32>> {
        let all = processes("cycle application-node")?;
        let is_child = |pid: &u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.lines().any(|line| line == format!("PPid:\t{leader}"))
        };
        Ok(all.into_iter().filter(is_child).collect())
    };
    wait_until("nodes", || Ok(nodes()?.len() == 2))?;
    thread::sleep(Duration::from_secs(1));
    let before = nodes()?;
    signal(&tested, "INT")?;
    let output = tested.wait_with_output()?;
    ensure!(output.status.code() == Some(0), "{output:?}");
    let result: CycleTestResult = serde_json::from_slice(&output.stdout)?;
    ensure!(result.findings.iter().any(|one| one.code == FindingCode::Interrupted), "{result:?}");
    let left = processes("cycle application-node")?;
    ensure!(!before.iter().any(|node| left.contains(node)), "{before:?} of {left:?} are left");
    Ok(())
}

fn invalid_tests_are_refused() -> Result<()> {
    let directory = TempDir::new()?;
    let stop = "kind = \"stop\"\nat = \"1s\"\nfor = \"1s\"\nnode = 2";
    for (name, text, words) in [
        ("toml", "[[stage".to_owned(), "line 1: "),
        (
            "schema",
            TEST.replace("test/2", "test/9"),
            "line 1: unsupported schema; this version reads",
        ),
        ("kind", TEST.to_owned() + &fault_table("kind = \"rain\"\nat = \"1s\""), "write one of"),
        ("long", TEST.to_owned() + &fault_table(&stop.replace("for = \"1s", "for = \"9s")), "ends"),
    ] {
        let path = write(&directory, name, &text)?;
        usage_error::check_refusal(&test(&[&path])?, USAGE, &[name, words])?;
    }
    let path = write(&directory, "good", &(TEST.to_owned() + &fault_table(stop)))?;
    for (arguments, words) in [
        (&["--nodes", "1"][..], "node 2 does not exist"),
        (&["--nodes", "0"], "--nodes"),
        (&["--time", "1s"], "or use a longer time (--time"),
        (&["--load", "none"], "expected a factor"),
        (&["--search-range", "1-2"], "--search"),
        (&["--search", "--trial-time", "1ms"], "10 periods"),
        (&["--fail-if", "rain>1"], "name a metric"),
        (&["--measured", "/nowhere"], "cannot read /nowhere"),
    ] {
        let refused = test(&[&[&*path], arguments].concat())?;
        usage_error::check_refusal(&refused, USAGE, &[words])
            .with_context(|| format!("{arguments:?}"))?;
    }
    let sample = test(&["--example"])?;
    ensure!(sample.status.success() && String::from_utf8(sample.stdout)?.contains("[[fault]]"));
    let broken = fault_table("kind = \"lost\"\nat = \"1s\"\nfor = \"100ms\"\nsource = \"radar\"");
    let path = write(
        &directory,
        "limit",
        &TEST
            .replace("6s", "2s")
            .replace("[[stage]]\nname = \"in", "steady = 3\n[[stage]]\nname = \"in"),
    )
    .and_then(|path| {
        fs::write(&path, fs::read_to_string(&path)? + &broken)?;
        Ok(path)
    })?;
    let limited = test(&[&path, "--fail-if", "detection>1us"])?;
    let stderr = String::from_utf8(limited.stderr)?;
    ensure!(limited.status.code() == Some(1) && stderr.contains("detection>1us"), "{stderr}");
    Ok(())
}
