//! `horolog bench nts`: capacity of a server and its CPU time per reply, by the number of its
//! threads and the share of requests that are authenticated by NTS, measured between two lab hosts.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_lab::{Lab, LabConfig};
use horolog_load::nts::{AeadAlgorithm, CookieMasterSecret, NtsSessions, SESSIONS_DEFAULT};
use horolog_load::ramp::Ramp;
use horolog_load::{LoadError, LoadOptions, LoadProcedure, LoadRun};
use horolog_record::{
    BENCH_NTS_SCHEMA, BenchNtsResult, CapacitySearchGoal, Finding, FindingCode, Host,
    LoadEngineKind, LoadResult, NtsMixCapacity, SearchEndReason, Severity, rfc3339_now,
};
use horolog_report::units;
use horolog_stats::{GoalLossRatio, SearchConfig};
use horolog_sys::private_file;
use zeroize::Zeroizing;

use super::{distinct_values, parse_thread_count};
use crate::commands::server_under_test::{self, SearchProgressObserver, ServerUnderTest};
use crate::failure::CommandFailure;
use crate::files::ResultFiles;
use crate::output;
use crate::result_store::StoreResultArgs;

/// Loss ratio up to which a trial counts as lossless. It is not 0 because server and generator
/// share the host, on which a single scheduling delay can lose a request.
const LOSS_RATIO_MAX: f64 = 1e-4;

/// Share of a server's capacity at which its CPU time per reply is measured: high load without
/// loss.
const COST_SHARE: f64 = 0.9;

/// Largest accepted size of a master secret file, in bytes.
const SECRET_LEN_MAX: u64 = 1 << 20;

/// Measure the cost of authentication on a multi-core server.
///
/// Creates two lab hosts (requires root), starts a server in one of them with one thread, then with
/// more, and searches from the other for the highest rate at which at most 0.01% of the requests
/// are lost, while 0%, 10%, 50% and 100% of them (--shares) are authenticated by NTS. One generator
/// sends all requests; it encrypts requests and decrypts replies in user space, on this host's
/// cores too. If the server has a thread for each core, server and generator share cores. A rate
/// that the generator limits is marked with ≥. Each rate is shown with the CPU time of the server's
/// threads per reply, which the generator hardly affects.
#[derive(Args, Debug)]
pub(crate) struct BenchNtsArgs {
    /// Numbers of threads of the server, such as 1,2,4 [default: one, doubled up to one for each
    /// core].
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = parse_thread_count)]
    threads: Vec<usize>,
    /// Percentages of requests that are authenticated; the results of the others are compared with
    /// that of the first percentage.
    #[arg(long, value_name = "PERCENT[,PERCENT...]", value_delimiter = ',',
          default_value = "0,10,50,100", value_parser = clap::value_parser!(u8).range(0..=100))]
    shares: Vec<u8>,
    /// Approximate total duration of the trials of each search.
    #[arg(long, value_name = "TIME", value_parser = crate::values::positive_duration, default_value = "5s")]
    time: Duration,
    /// Engine of the server. xdp: XDP, with redirection of authenticated requests to threads;
    /// socket: only sockets; auto: the best available one.
    #[arg(long, value_enum, default_value_t = BenchNtsEngineArg::Auto)]
    engine: BenchNtsEngineArg,
    /// Threads of the generator [default: one for every second core].
    #[arg(long, value_name = "N", value_parser = parse_thread_count)]
    load_threads: Option<usize>,
    /// AEAD algorithm of the sessions.
    #[arg(long, value_enum, value_name = "NAME", default_value_t = BenchAeadAlgorithmArg::AesSivCmac256)]
    algorithm: BenchAeadAlgorithmArg,
    /// File of the master secret of the server, as for 'horolog serve' [default: one created for
    /// the experiment].
    #[arg(long, value_name = "FILE")]
    nts_master_secret: Option<PathBuf>,
    /// Write the result to FILE as JSON; '-' writes it to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML report with plots to FILE.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    store_args: StoreResultArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum BenchNtsEngineArg {
    Auto,
    Socket,
    Xdp,
}

impl BenchNtsEngineArg {
    const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Socket => "socket",
            Self::Xdp => "xdp",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum BenchAeadAlgorithmArg {
    #[value(name = "aes-siv-cmac-256")]
    AesSivCmac256,
    #[value(name = "aes-128-gcm-siv")]
    Aes128GcmSiv,
}

/// Arguments, lab and master secret of the benchmark, shared by all measurements.
struct NtsBench<'a> {
    args: &'a BenchNtsArgs,
    lab: Lab,
    secret: CookieMasterSecret,
    secret_file: PathBuf,
    /// Temporary directory of the secret file, unless the user supplied one; removed on drop.
    _directory: tempfile::TempDir,
}

pub(crate) fn run(args: &BenchNtsArgs) -> Result<(), CommandFailure> {
    let files = ResultFiles::open([("--json", &args.json), ("--html", &args.html)])?
        .with_store(&args.store_args);
    output::install_interrupt_handler()?;
    let (bench, started) = (NtsBench::open(args)?, rfc3339_now());
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = if args.threads.is_empty() {
        default_thread_counts(cores)
    } else {
        distinct_values(&args.threads)
    };
    let mut capacities = Vec::new();
    let combinations = threads.iter().flat_map(|threads| {
        distinct_values(&args.shares).into_iter().map(move |share| (*threads, share))
    });
    for (threads, share) in combinations {
        capacities.push(bench.measure(threads, share)?);
        if output::check_stop_request().is_break() {
            break;
        }
    }
    let result = BenchNtsResult {
        schema: BENCH_NTS_SCHEMA.to_owned(),
        started,
        command: output::command_line(),
        host: Host::read(),
        findings: findings(&capacities, cores),
        capacities,
    };
    files.write(&result)
}

/// Returns the default thread counts: powers of two below `cores`, and `cores`.
fn default_thread_counts(cores: usize) -> Vec<usize> {
    let powers = (0..).map(|power| 1 << power).take_while(|&threads| threads < cores);
    powers.chain([cores]).collect()
}

/// Returns the findings on the whole benchmark.
fn findings(capacities: &[NtsMixCapacity], cores: usize) -> Vec<Finding> {
    let shared_cores = capacities.iter().any(|one| one.threads + one.load.threads > cores);
    let is_limit = |one: &NtsMixCapacity| {
        one.load.search.as_ref().is_some_and(|search| search.end == SearchEndReason::GeneratorLimit)
    };
    let finding = |code, message: String, advice: &str| Finding {
        code,
        severity: Severity::Warning,
        message,
        advice: advice.to_owned(),
        trial: None,
    };
    let of_cores = shared_cores.then(|| {
        let message = format!(
            "server and generator threads exceeded the {cores} cores, so each server thread had \
             less than one core"
        );
        let advice = "compare the CPU time per reply, or use a host with more cores";
        finding(FindingCode::SharedMachine, message, advice)
    });
    let of_generator = capacities.iter().any(is_limit).then(|| {
        let message = "for rates with ≥ the generator reached its limit before the server";
        let advice = "give it more cores with --load-threads, or compare the CPU time";
        finding(FindingCode::GeneratorLimit, message.to_owned(), advice)
    });
    let interrupted = output::check_stop_request().is_break().then(|| {
        let message = "the experiment was ended early".to_owned();
        finding(FindingCode::Interrupted, message, "missing values were not measured")
    });
    of_cores.into_iter().chain(of_generator).chain(interrupted).collect()
}

impl<'a> NtsBench<'a> {
    fn open(args: &'a BenchNtsArgs) -> Result<Self, CommandFailure> {
        let failed = |error: io::Error| {
            CommandFailure::environment(format!("cannot store the master secret: {error}"))
        };
        let directory =
            tempfile::Builder::new().prefix("horolog-bench-").tempdir().map_err(failed)?;
        let (secret, secret_file) = if let Some(path) = &args.nts_master_secret {
            (read_master_secret(path)?, path.clone())
        } else {
            let secret = CookieMasterSecret::generate().map_err(CommandFailure::environment)?;
            let path = directory.path().join("secret");
            let mut options = File::options();
            let mut file =
                options.write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
            file.write_all(secret.to_text().as_bytes()).map_err(failed)?;
            (secret, path)
        };
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let lab = Lab::new(&LabConfig { queues: cores, ..LabConfig::default() })?;
        Ok(Self { args, lab, secret, secret_file, _directory: directory })
    }

    /// Measures the capacity of a server with `threads` threads while `share` percent of the
    /// requests are authenticated, and then its CPU time per reply near that capacity.
    fn measure(&self, threads: usize, share: u8) -> Result<NtsMixCapacity, CommandFailure> {
        let server = self.start_server(threads)?;
        let plural = if threads == 1 { "" } else { "s" };
        let label = format!("{threads} thread{plural}, {share}% authenticated");
        let load = self.run_load(&server, share, search_job(self.args.time)?, &label)?;
        let sustained_rate = load.search.as_ref().and_then(|search| search.lower);
        let cpu_ns_per_reply =
            match sustained_rate.filter(|_| output::check_stop_request().is_continue()) {
                Some(rate) => self.reply_cpu_ns(&server, share, rate * COST_SHARE, &label)?,
                None => None,
            };
        if let Some(search) = &load.search {
            let cost = cpu_ns_per_reply.map_or_else(String::new, |ns| {
                format!(", {} CPU time per reply", units::human_ns(ns.round() as u64))
            });
            let rate = units::human_rate(search.rate);
            output::print_note(&format!("horolog: {label}: {rate}{cost}"));
        }
        Ok(NtsMixCapacity {
            threads,
            authenticated_percent: share,
            server_command: server.command,
            cpu_ns_per_reply,
            load,
        })
    }

    fn server_address(&self) -> SocketAddr {
        SocketAddr::new(self.lab.server().first_interface().ipv4.into(), 123)
    }

    fn start_server(&self, threads: usize) -> Result<ServerUnderTest, CommandFailure> {
        let (address, threads) = (self.server_address().to_string(), threads.to_string());
        let secret = self.secret_file.display().to_string();
        let engine = self.args.engine.name();
        let arguments = ["--local", "--stratum", "1", "--listen", &address, "--engine", engine];
        let more = ["--threads", &threads, "--nts-master-secret", &secret];
        let arguments: Vec<_> = arguments.into_iter().chain(more).map(str::to_owned).collect();
        ServerUnderTest::start(
            self.lab.server().command(ServerUnderTest::program_path()?),
            &arguments,
        )
    }

    /// Runs a load on a server, with `share` percent authenticated requests.
    fn run_load(
        &self,
        server: &ServerUnderTest,
        share: u8,
        job: LoadProcedure,
        label: &str,
    ) -> Result<LoadResult, CommandFailure> {
        let algorithm = match self.args.algorithm {
            BenchAeadAlgorithmArg::AesSivCmac256 => AeadAlgorithm::AesSivCmac256,
            BenchAeadAlgorithmArg::Aes128GcmSiv => AeadAlgorithm::Aes128GcmSiv,
        };
        let sessions =
            NtsSessions::from_master_secret(&self.secret, algorithm, SESSIONS_DEFAULT, share)
                .map_err(CommandFailure::environment)?;
        let mut options =
            LoadOptions::new(server_under_test::target_name(self.server_address())?, job);
        // A fixed load engine makes the results of all shares comparable.
        options.engine = Some(LoadEngineKind::Packet);
        let half = thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2));
        options.threads = Some(self.args.load_threads.unwrap_or(half));
        options.namespaces = vec![self.lab.server().netns.clone()];
        options.sessions = Some(Arc::new(sessions));
        options.counter_source = Some(server.counter_source());
        options.command = output::command_line();
        let mut observer = SearchProgressObserver::named(format!("{label}: "));
        let result: Result<LoadResult, LoadError> =
            self.lab.client().run(|| LoadRun::prepare(options)?.run(&mut observer))?;
        observer.finish();
        Ok(result?)
    }

    /// Measures the server's CPU time per reply in ns, at `rate` requests per second; `None` if
    /// there were no replies or the kernel does not report CPU time.
    fn reply_cpu_ns(
        &self,
        server: &ServerUnderTest,
        share: u8,
        rate: f64,
        label: &str,
    ) -> Result<Option<f64>, CommandFailure> {
        let duration = self.args.time / 4;
        let ramp = Ramp { min: rate, max: rate, multiplier: 2.0, duration };
        let before = server.cpu_ns();
        let result = self.run_load(server, share, LoadProcedure::Ramp(ramp), label)?;
        let spent = server.cpu_ns().zip(before).map(|(after, before)| after.saturating_sub(before));
        let replies: u64 = result.trials.iter().map(|trial| trial.received).sum();
        Ok(spent.filter(|_| replies > 0).map(|spent| spent as f64 / replies as f64))
    }
}

fn read_master_secret(path: &Path) -> Result<CookieMasterSecret, CommandFailure> {
    let failed = |error| {
        CommandFailure::environment(format!("--nts-master-secret {} {error}", path.display()))
    };
    let text = private_file::read(path, SECRET_LEN_MAX).map(Zeroizing::new).map_err(failed)?;
    CookieMasterSecret::parse(&text)
        .map_err(|error| CommandFailure::environment(format!("{}: {error}", path.display())))
}

/// Returns a search whose trials take about `time` in total.
fn search_job(time: Duration) -> Result<LoadProcedure, CommandFailure> {
    let goal = GoalLossRatio::new(LOSS_RATIO_MAX).map_err(CommandFailure::usage)?;
    let mut config = SearchConfig::new(goal, 1e3, 20e6);
    // With final trials of 1 s, the default, a search sends for about 10 s.
    output::scale_search(&mut config, time / 10);
    Ok(LoadProcedure::Search { kind: CapacitySearchGoal::Ndr, config })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_threads() {
        assert_eq!(
            (default_thread_counts(1), default_thread_counts(2), default_thread_counts(6)),
            (vec![1], vec![1, 2], vec![1, 2, 4, 6])
        );
    }
}
