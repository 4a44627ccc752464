//! `cargo xtask fuzz`: builds the fuzz targets with coverage counters on the stable compiler and
//! runs each for some seconds, as many at a time as there are processors. The corpus lives in the
//! cache, outside the clone, so each run starts from what earlier ones found; `fuzz/seeds/TARGET`
//! feeds the first. It keeps a crash, and says how to see it again; it does not minimise or judge
//! it.

mod report;

use std::fs::{self, File};
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, available_parallelism};

use anyhow::{Context, Result, bail, ensure};

use crate::cargo;
use report::Outcome;

/// The flags that make LLVM count what runs. cargo-fuzz passes the same, by way of a nightly
/// option.
const COVERAGE_FLAGS: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// No input of a packet parser takes this long; one that does is a finding.
const SECONDS_PER_INPUT_MAX: u32 = 5;

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// For each target.
    seconds: u32,
    /// All targets if `None`.
    target: Option<String>,
}

impl Options {
    /// `None` if the arguments make no sense.
    pub(crate) fn parse(arguments: &[&str]) -> Option<Self> {
        let mut options = Self { seconds: 10, target: None };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match *argument {
                // Zero would mean "for ever" to libFuzzer.
                "--seconds" => {
                    options.seconds = rest.next()?.parse().ok().filter(|seconds| *seconds > 0)?;
                }
                flag if flag.starts_with('-') => return None,
                name if options.target.is_none() => options.target = Some(name.to_owned()),
                _ => return None,
            }
        }
        Some(options)
    }
}

/// Builds and runs the targets; `true` when none of them crashed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let plan = Plan::new()?;
    let targets: Vec<&String> = plan
        .targets
        .iter()
        .filter(|target| options.target.as_ref().is_none_or(|wanted| wanted == *target))
        .collect();
    if targets.is_empty() {
        bail!("no such fuzz target; there are: {}", plan.targets.join(", "));
    }
    plan.build(options.target.as_deref())?;
    let crashed = plan.fuzz_all(&targets, options.seconds)?;
    println!("fuzz: {} targets, {crashed} crashed", targets.len());
    Ok(crashed == 0)
}

/// Where everything is.
struct Plan {
    targets: Vec<String>,
    host: String,
    target_directory: PathBuf,
    cache: PathBuf,
}

impl Plan {
    fn new() -> Result<Self> {
        let product = cargo::metadata(&manifest("Cargo.toml"))?;
        let fuzz = cargo::metadata(&manifest("fuzz/Cargo.toml"))?;
        let targets = fuzz
            .members()
            .flat_map(|package| &package.targets)
            .filter(|target| target.kind.iter().any(|kind| kind == "bin"))
            .map(|target| target.name.clone())
            .collect();
        Ok(Self {
            targets,
            host: cargo::host_triple()?,
            target_directory: product.target_directory.join("fuzz"),
            cache: cache_directory()?,
        })
    }

    fn binary(&self, target: &str) -> PathBuf {
        self.target_directory.join(&self.host).join("release").join(target)
    }

    fn build(&self, target: Option<&str>) -> Result<()> {
        let mut command = Command::new("cargo");
        command
            .args(["build", "--locked", "--release", "--manifest-path"])
            .arg(manifest("fuzz/Cargo.toml"))
            // Naming the host as the target keeps the flags away from build scripts and procedural
            // macros, which could not be linked with them.
            .args(["--target", &self.host, "--target-dir"])
            .arg(&self.target_directory)
            .env("RUSTFLAGS", COVERAGE_FLAGS.join(" "))
            .env_remove("CARGO_ENCODED_RUSTFLAGS");
        if let Some(target) = target {
            command.args(["--bin", target]);
        }
        let status = command.status().context("cannot run cargo build")?;
        ensure!(status.success(), "the fuzz targets do not build");
        Ok(())
    }

    /// Runs as many targets at a time as there are processors; returns how many crashed.
    fn fuzz_all(&self, targets: &[&String], seconds: u32) -> Result<usize> {
        let waiting = Mutex::new(targets.iter());
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            let mut crashed = 0;
            while let Some(target) = next() {
                let outcome = self.fuzz(target, seconds)?;
                let mut text = outcome.line(target);
                if !outcome.passed {
                    crashed += 1;
                    text = format!("{text}\n{}", outcome.advice(&self.binary(target)));
                }
                println!("{text}");
            }
            Ok(crashed)
        };
        thread::scope(|scope| {
            let processors = available_parallelism().map_or(1, NonZero::get);
            let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or_else(|p| resume_unwind(p)))
                .sum()
        })
    }

    fn fuzz(&self, target: &str, seconds: u32) -> Result<Outcome> {
        let home = self.cache.join("fuzz").join(target);
        let corpus = created(home.join("corpus"))?;
        let crashes = created(home.join("crashes"))?;
        let seeds = manifest("fuzz/seeds").join(target);
        let log_path = home.join("log");
        let log = File::create(&log_path)
            .with_context(|| format!("cannot write {}", log_path.display()))?;
        let status = Command::new(self.binary(target))
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-timeout={SECONDS_PER_INPUT_MAX}"))
            .arg(format!("-artifact_prefix={}/", crashes.display()))
            .args(["-use_value_profile=1", "-print_final_stats=1"])
            // What is new goes to the first directory. Old crashes are tried again, so that luck
            // does not turn a run green while the fault is still there.
            .args([&corpus, &crashes])
            .args(Some(seeds).filter(|seeds| seeds.is_dir()))
            .stderr(log)
            .status()
            .with_context(|| format!("cannot run the fuzz target {target}"))?;
        let log =
            fs::read(&log_path).with_context(|| format!("cannot read {}", log_path.display()))?;
        Outcome::new(&String::from_utf8_lossy(&log), status.success())
            .with_context(|| format!("{target}; see {}", log_path.display()))
    }
}

fn manifest(path: &str) -> PathBuf {
    cargo::root().join(path)
}

fn created(directory: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    Ok(directory)
}

/// The same place as in scripts/lib.sh.
fn cache_directory() -> Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(cache) = variable("HOROLOG_CACHE") {
        return Ok(cache.into());
    }
    let caches = match variable("XDG_CACHE_HOME") {
        Some(caches) => PathBuf::from(caches),
        None => Path::new(&variable("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(caches.join("horolog"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(seconds: u32, target: Option<&str>) -> Options {
        Options { seconds, target: target.map(str::to_owned) }
    }

    #[test]
    fn options_are_read_in_any_order() {
        assert_eq!(Options::parse(&[]), Some(options(10, None)));
        assert_eq!(Options::parse(&["--seconds", "3", "a"]), Some(options(3, Some("a"))));
        assert_eq!(Options::parse(&["a", "--seconds", "3"]), Some(options(3, Some("a"))));
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        for arguments in [&["--seconds"][..], &["--seconds", "0"], &["--second", "1"], &["a", "b"]]
        {
            assert_eq!(Options::parse(arguments), None, "{arguments:?}");
        }
    }
}
