//! Scenarios of `horolog relay tree`: trees of real relays are measured, and the order of their
//! delays agrees with the model; a tree built from pairs is read again; invalid trees are refused;
//! a killed measurement leaves nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::RunningProgram;
use horolog_record::{RelayTreeEngineDelays, RelayTreeMeasurement, RelayTreeResult};
use tempfile::TempDir;

use crate::process::{TIMEOUT, binary, run_to_end};
use crate::scenario::{Queue, Scenario};
use crate::{ROOT, relay_tree, scenarios};

/// Timeout of a measurement of a small tree on a busy machine.
const MEASUREMENT_TIMEOUT: Duration = Duration::from_secs(90);
/// Interval that leaves a relay time to copy one packet before the next.
const INTERVAL: [&str; 2] = ["--interval", "500us"];
/// Largest ratio, either way, of model and measurement on a few cores that all nodes share.
const RATIO_MAX: f64 = 6.0;

pub(crate) fn all() -> Vec<Scenario> {
    let [tree, chain, killed] = scenarios!(ROOT, relay_tree:
        a_tree_of_relays_is_measured,
        a_long_chain_is_slower_than_a_pair_as_modelled,
        a_killed_measurement_leaves_nothing,
    );
    let (tree, chain) = (tree.in_queue(Queue::Exclusive), chain.in_queue(Queue::Measuring));
    let mut all = vec![tree, chain, killed];
    all.extend(scenarios!(&[], relay_tree:
        a_tree_from_pairs_is_read_again,
        an_invalid_tree_is_refused,
    ));
    all
}

fn run_tree(arguments: &[&str]) -> Result<Output> {
    run_to_end(Command::new(binary()?).args(["relay", "tree"]).args(arguments), MEASUREMENT_TIMEOUT)
}

fn tree_result(arguments: &[&str]) -> Result<RelayTreeResult> {
    let output = run_tree(&[arguments, &["--json", "-"]].concat())?;
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn measurement_of(engine: &RelayTreeEngineDelays) -> Result<&RelayTreeMeasurement> {
    engine.measured.as_ref().context("an engine was not measured")
}

/// Returns the median delay of each node, in ns.
fn medians(engine: &RelayTreeEngineDelays) -> Result<Vec<f64>> {
    let nodes = measurement_of(engine)?.nodes.iter();
    let median = |node: &Option<horolog_record::Distribution>| {
        node.as_ref().map(|node| node.p50 as f64).context("a node was not reached")
    };
    nodes.map(median).collect()
}

fn is_near_model(ratio: f64) -> bool {
    (1.0 / RATIO_MAX..=RATIO_MAX).contains(&ratio)
}

fn a_tree_of_relays_is_measured() -> Result<()> {
    let form = ["--degree", "3", "--depth", "2", "--measure", "--packets", "300"];
    let result = tree_result(&[&form[..], &INTERVAL].concat())?;
    ensure!(result.nodes.len() == 13 && result.engines.len() == 2);
    for engine in &result.engines {
        let (name, medians) = (&engine.name, medians(engine)?);
        let measured = measurement_of(engine)?;
        ensure!(measured.lost == 0, "{name}: {} copies lost", measured.lost);
        let packets = measured.nodes.iter().flatten().all(|node| node.count == 300);
        ensure!(packets, "{name}: not all packets counted");
        let copies = &measured.calibration.copies_ns;
        ensure!(copies.first() < copies.last(), "{name}: {:?}", measured.calibration);
        for (at, node) in result.nodes.iter().enumerate() {
            let Some(parent) = node.parent else { continue };
            ensure!(medians[at] > medians[parent], "{name}: node {at} before its parent");
        }
        // A relay serves its children one after another.
        ensure!(medians[1] < medians[3], "{name}: {medians:?}");
        let tree = measured.tree_ns.context("no tree delay")? / engine.tree_ns;
        let mean = measured.mean_ns.context("no mean")? / engine.mean_ns;
        let is_near = is_near_model(tree) && is_near_model(mean);
        ensure!(is_near, "{name}: tree delay {tree} ×, mean {mean} × the model");
    }
    let gain = result.gain.context("no gain")?;
    ensure!(gain.measured_tree_ns.is_some() && gain.regular.broken.is_empty(), "{gain:?}");
    Ok(())
}

/// A chain of eight relays is slower than one relay with two children.
fn a_long_chain_is_slower_than_a_pair_as_modelled() -> Result<()> {
    for engine in ["send", "xdp"] {
        let of = |degree, depth| -> Result<(f64, f64)> {
            let form = ["--degree", degree, "--depth", depth, "--measure", "--packets", "100"];
            let result = tree_result(&[&form[..], &INTERVAL, &["--engine", engine]].concat())?;
            let engine = result.engines.first().context("no engine")?;
            Ok((engine.tree_ns, measurement_of(engine)?.tree_ns.context("no tree delay")?))
        };
        let (chain, pair) = (of("1", "8")?, of("2", "1")?);
        ensure!(chain.0 > pair.0, "{engine}: by the model {} and {}", chain.0, pair.0);
        ensure!(chain.1 > pair.1, "{engine}: measured {} and {}", chain.1, pair.1);
    }
    Ok(())
}

/// Returns the network namespaces of a process's threads.
fn namespaces(process: &Path) -> BTreeSet<PathBuf> {
    let tasks = fs::read_dir(process.join("task")).into_iter().flatten();
    // A thread that has ended meanwhile has none.
    tasks.filter_map(|task| fs::read_link(task.ok()?.path().join("ns/net")).ok()).collect()
}

fn a_killed_measurement_leaves_nothing() -> Result<()> {
    let mut command = Command::new(binary()?);
    command.args(["relay", "tree", "--degree", "2", "--depth", "3", "--measure"]);
    let mut running = RunningProgram::start(command.args(["--packets", "1000"]))?;
    let process = Path::new("/proc").join(running.pid().to_string());
    let own = namespaces(Path::new("/proc/self"));
    let private = || namespaces(&process).difference(&own).cloned().collect::<BTreeSet<_>>();
    // The threads of its relays are in lab hosts.
    running.await_ready(MEASUREMENT_TIMEOUT, || !private().is_empty())?;
    let private = private();
    drop(running);
    let begun = Instant::now();
    let is_left = || -> Result<bool> {
        let mut all = fs::read_dir("/proc")?.filter_map(|entry| Some(entry.ok()?.path()));
        Ok(all.any(|process| !namespaces(&process).is_disjoint(&private)))
    };
    while is_left()? {
        ensure!(begun.elapsed() < TIMEOUT, "processes remain in lab hosts");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

const PAIRS: &str = "from,to,delay_us\na,b,100\na,c,120\na,d,300\nb,c,30\nb,d,50\nc,d,60\na,e,400\n\
                     d,e,20\nc,e,200\nb,e,90\n";
const TIMES: [&str; 2] = ["--user-space", "20us,6us"];

fn write(directory: &TempDir, name: &str, text: &str) -> Result<String> {
    let path = directory.path().join(name);
    fs::write(&path, text)?;
    Ok(path.to_string_lossy().into_owned())
}

fn a_tree_from_pairs_is_read_again() -> Result<()> {
    let directory = TempDir::new()?;
    let pairs = write(&directory, "pairs.csv", PAIRS)?;
    let file = directory.path().join("tree.toml");
    let file = file.to_string_lossy();
    let form = ["--pairwise", &*pairs, "--degree-max", "2", "--toml", &*file];
    let made = tree_result(&[&form[..], &TIMES].concat())?;
    ensure!(made.shapes.len() == 3, "{:?}", made.shapes);
    let [compact, star, chain] = &made.shapes[..] else { return Ok(()) };
    ensure!(compact.degree_max <= 2 && compact.tree_ns <= star.tree_ns.min(chain.tree_ns));
    let read = tree_result(&[&*file])?;
    ensure!(read.nodes.len() == 5 && read.engines[0].name == "user-space");
    let apart = (read.engines[0].tree_ns - made.engines[0].tree_ns).abs();
    ensure!(apart < 1.0, "the tree delay differs by {apart} ns");
    Ok(())
}

/// Checks that a command is refused as wrong usage, in one line that contains `words`.
fn check_refused(arguments: &[&str], words: &str) -> Result<()> {
    let output = run_tree(arguments)?;
    let stderr = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(2), "{arguments:?}: {:?}", output.status);
    let is_line = stderr.starts_with("horolog: ") && stderr.lines().count() == 1;
    ensure!(is_line && stderr.contains(words), "{arguments:?}: {stderr}");
    Ok(())
}

fn an_invalid_tree_is_refused() -> Result<()> {
    let directory = TempDir::new()?;
    let edge = |from: &str, to: &str, delay: &str| {
        format!("[[edge]]\nfrom = \"{from}\"\nto = \"{to}\"\ndelay-us = {delay}\n")
    };
    let (ab, bc, ca) = (edge("a", "b", "1"), edge("b", "c", "1"), edge("c", "a", "1"));
    for (name, edges, words) in [
        ("root", ab.clone() + &bc + &ca, "line 1: the tree has no root"),
        (
            "cycle",
            edge("b", "c", "1") + &edge("c", "b", "1"),
            "line 1: the edges contain a cycle: ",
        ),
        ("parents", ab.clone() + &bc + &edge("a", "c", "1"), "line 10: node 'c' has two parents"),
        ("unknown", ab.clone() + &edge("b", "x", "1"), "line 8: node 'x' is not in the list"),
        ("roots", ab.clone(), "line 1: 'a' and 'c' both have no parent"),
        ("negative", ab.clone() + &edge("b", "c", "-1"), "line 9: delay-us is -1 µs"),
        ("toml", "[[edge".to_owned(), "line 2: "),
    ] {
        let text = format!("nodes = [\"a\", \"b\", \"c\"]\n{edges}");
        let path = write(&directory, name, &text)?;
        ensure!(Path::new(&path).is_file());
        check_refused(&[&[&*path][..], &TIMES].concat(), words)?;
    }
    let many: Vec<&str> = [&["--degree", "2", "--depth", "40"][..], &TIMES].concat();
    check_refused(&many, "40 levels below the root exceed")?;
    check_refused(&["--degree", "2", "--depth", "2"], "no processing time of a node given")?;
    check_refused(&["--degree", "8", "--depth", "2", "--measure"], "exceed the lab")?;
    let twice = ["--degree", "2", "--depth", "2", "--measure", "--engine", "send,send"];
    check_refused(&twice, "one engine, or two different ones")?;
    let pairs = write(&directory, "pairs", "from,to,delay_us\na,b,1\nb,a\n")?;
    let form = ["--pairwise", &*pairs, "--degree-max", "2"];
    check_refused(&[&form[..], &TIMES].concat(), "pairs, line 3: write 'from,to,delay_us'")?;
    let pairs = write(&directory, "apart", "from,to,delay_us\na,b,1\nc,d,1\n")?;
    let form = ["--pairwise", &*pairs, "--degree-max", "2"];
    check_refused(&[&form[..], &TIMES].concat(), "no path found to 'c' and 1 more nodes")?;
    check_refused(&[&form[..], &TIMES, &["--root", "z"]].concat(), "no node 'z' for --root")?;
    let form = ["--degree", "2", "--depth", "2"];
    for (idle, words) in [
        (["--degree-max", "3"], "--degree-max requires --pairwise"),
        (["--root", "a"], "--root requires --pairwise"),
        (["--engine", "xdp"], "--engine requires --measure"),
        (["--packets", "100"], "--packets requires --measure"),
        (["--interval", "1ms"], "--interval requires --measure"),
        (["--size", "64"], "--size requires --measure"),
        (["--delay", "100"], "write a time with its unit"),
    ] {
        check_refused(&[&form[..], &TIMES, &idle].concat(), words)?;
    }
    check_refused(&[&form[..], &["--user-space", "20,6"]].concat(), "two times with units")
}
