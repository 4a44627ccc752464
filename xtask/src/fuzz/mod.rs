//! `cargo xtask fuzz`: builds the fuzz targets with coverage counters on the stable compiler and
//! runs each for some seconds, as many at a time as there are CPUs. The corpus is in the cache,
//! outside the clone, so each run starts with the inputs that earlier ones found, and the first one
//! with `fuzz/seeds/TARGET`. A crash is stored and reported with a command that reproduces it; it
//! is not minimised. With `--changed`, a target whose sources are those of its last clean run only
//! runs the inputs of its corpus.

mod report;
mod sources;

use std::fs::{self, File};
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, available_parallelism};

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{self, Metadata};
use report::FuzzOutcome;
use sources::FuzzSources;

/// Flags that make LLVM add coverage counters. cargo-fuzz passes the same ones by a nightly option.
const COVERAGE_FLAGS: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Longest time in seconds for one input of a packet parser; a longer one counts as a crash.
const SECONDS_PER_INPUT_MAX: u32 = 5;

/// Options of the command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FuzzOptions {
    /// Duration of the run of each target.
    seconds: u32,
    /// Only run the corpus of unchanged targets.
    changed: bool,
    /// All targets if `None`.
    target: Option<String>,
}

impl FuzzOptions {
    /// Parses the arguments. Returns `None` if they are invalid.
    pub(crate) fn parse(arguments: &[&str]) -> Option<Self> {
        let mut options = Self { seconds: 10, changed: false, target: None };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match *argument {
                // Zero would mean no limit to libFuzzer.
                "--seconds" => {
                    options.seconds = rest.next()?.parse().ok().filter(|seconds| *seconds > 0)?;
                }
                "--changed" => options.changed = true,
                flag if flag.starts_with('-') => return None,
                name if options.target.is_none() => options.target = Some(name.to_owned()),
                _ => return None,
            }
        }
        Some(options)
    }
}

/// Builds and runs the targets. Returns true if none of them crashed.
pub(crate) fn run(options: &FuzzOptions) -> Result<bool> {
    let plan = FuzzPlan::new()?;
    let all = plan.targets();
    let is_wanted = |target: &&cargo::Target| {
        options.target.as_ref().is_none_or(|wanted| *wanted == target.name)
    };
    let targets: Vec<&cargo::Target> = all.iter().copied().filter(is_wanted).collect();
    if targets.is_empty() {
        let names: Vec<&str> = all.iter().map(|target| target.name.as_str()).collect();
        bail!("no such fuzz target; available: {}", names.join(", "));
    }
    plan.build(options.target.as_deref())?;
    let crashed = plan.fuzz_all(&targets, options)?;
    println!("fuzz: {} targets, {crashed} crashed", targets.len());
    Ok(crashed == 0)
}

/// Packages of the fuzz targets, and the directories of their programs and corpora.
struct FuzzPlan {
    metadata: Metadata,
    host: String,
    target_directory: PathBuf,
    cache: PathBuf,
}

impl FuzzPlan {
    fn new() -> Result<Self> {
        let product = cargo::metadata(&workspace_path("Cargo.toml"))?;
        Ok(Self {
            metadata: cargo::metadata(&workspace_path("fuzz/Cargo.toml"))?,
            host: cargo::host_triple()?,
            target_directory: product.target_directory.join("fuzz"),
            cache: cache_directory()?,
        })
    }

    fn targets(&self) -> Vec<&cargo::Target> {
        let all = self.metadata.members().flat_map(|package| &package.targets);
        all.filter(|target| target.kind.iter().any(|kind| kind == "bin")).collect()
    }

    fn binary(&self, target: &str) -> PathBuf {
        self.target_directory.join(&self.host).join("release").join(target)
    }

    fn build(&self, target: Option<&str>) -> Result<()> {
        let mut command = Command::new("cargo");
        command
            .args(["build", "--locked", "--release", "--manifest-path"])
            .arg(workspace_path("fuzz/Cargo.toml"))
            // With an explicit target the flags do not apply to build scripts and procedural
            // macros, which could not be linked with them.
            .args(["--target", &self.host, "--target-dir"])
            .arg(&self.target_directory)
            .env("RUSTFLAGS", COVERAGE_FLAGS.join(" "))
            .env_remove("CARGO_ENCODED_RUSTFLAGS");
        if let Some(target) = target {
            command.args(["--bin", target]);
        }
        let status = command.status().context("cannot run cargo build")?;
        ensure!(status.success(), "cannot build the fuzz targets");
        Ok(())
    }

    /// Runs as many targets at a time as there are CPUs. Returns the number of crashes.
    fn fuzz_all(&self, targets: &[&cargo::Target], options: &FuzzOptions) -> Result<usize> {
        let sources = FuzzSources::new(&self.metadata, workspace_path("fuzz/Cargo.lock"));
        let waiting = Mutex::new(targets.iter());
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            let mut crashed = 0;
            while let Some(target) = next() {
                let outcome = self.fuzz(target, &sources, options)?;
                let mut text = outcome.line(&target.name);
                if !outcome.passed {
                    crashed += 1;
                    text = format!("{text}\n{}", outcome.advice(&self.binary(&target.name)));
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

    fn fuzz(
        &self,
        target: &cargo::Target,
        sources: &FuzzSources<'_>,
        options: &FuzzOptions,
    ) -> Result<FuzzOutcome> {
        let FuzzOptions { seconds, changed, .. } = *options;
        let digest = sources.digest(&target.src_path)?.to_string();
        let target = &target.name;
        let home = self.cache.join("fuzz").join(target);
        // The digest of the sources of the last run without a crash.
        let clean = home.join("clean");
        let is_unchanged = fs::read_to_string(&clean).is_ok_and(|of_last| of_last == digest);
        let length = if changed && is_unchanged {
            "-runs=0".to_owned()
        } else {
            format!("-max_total_time={seconds}")
        };
        let corpus = create_directory(home.join("corpus"))?;
        let crashes = create_directory(home.join("crashes"))?;
        let seeds = workspace_path("fuzz/seeds").join(target);
        let log_path = home.join("log");
        let log = File::create(&log_path)
            .with_context(|| format!("cannot write {}", log_path.display()))?;
        let status = Command::new(self.binary(target))
            .arg(length)
            .arg(format!("-timeout={SECONDS_PER_INPUT_MAX}"))
            .arg(format!("-artifact_prefix={}/", crashes.display()))
            .args(["-use_value_profile=1", "-print_final_stats=1"])
            // New inputs go to the first directory. Inputs of earlier crashes are run again: a run
            // succeeds only if their cause has been removed.
            .args([&corpus, &crashes])
            .args(Some(seeds).filter(|seeds| seeds.is_dir()))
            .stderr(log)
            .status()
            .with_context(|| format!("cannot run the fuzz target {target}"))?;
        let log =
            fs::read(&log_path).with_context(|| format!("cannot read {}", log_path.display()))?;
        let outcome = FuzzOutcome::new(&String::from_utf8_lossy(&log), status.success())
            .with_context(|| format!("{target}; see {}", log_path.display()))?;
        if outcome.passed {
            fs::write(&clean, digest)
                .with_context(|| format!("cannot write {}", clean.display()))?;
        }
        Ok(outcome)
    }
}

fn workspace_path(path: &str) -> PathBuf {
    cargo::root().join(path)
}

fn create_directory(directory: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    Ok(directory)
}

/// Returns the cache directory, determined as in scripts/lib.sh.
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

    fn options(seconds: u32, target: Option<&str>) -> FuzzOptions {
        FuzzOptions { seconds, changed: false, target: target.map(str::to_owned) }
    }

    #[test]
    fn options_are_read_in_any_order() {
        assert_eq!(FuzzOptions::parse(&[]), Some(options(10, None)));
        assert_eq!(FuzzOptions::parse(&["--seconds", "3", "a"]), Some(options(3, Some("a"))));
        assert_eq!(FuzzOptions::parse(&["a", "--seconds", "3"]), Some(options(3, Some("a"))));
        let changed = FuzzOptions { changed: true, ..options(10, None) };
        assert_eq!(FuzzOptions::parse(&["--changed"]), Some(changed));
    }

    #[test]
    fn invalid_options_are_refused() {
        for arguments in [&["--seconds"][..], &["--seconds", "0"], &["--second", "1"], &["a", "b"]]
        {
            assert_eq!(FuzzOptions::parse(arguments), None, "{arguments:?}");
        }
    }
}
