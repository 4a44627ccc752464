//! `horolog demo`: comparison of the capacities of several server configurations, each measured by
//! the same search between two lab hosts or on loopback.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use clap::Args;
use horolog_lab::{Lab, LabConfig, LabError};
use horolog_load::{LoadError, LoadOptions, LoadProcedure, LoadRun};
use horolog_record::{
    CapacitySearchGoal, DEMO_SCHEMA, DemoCandidateResult, DemoResult, Finding, FindingCode, Host,
    LoadEngineKind, LoadResult, Severity, rfc3339_now,
};
use horolog_report::{RenderableResult, to_json};
use horolog_stats::{GoalLossRatio, SearchConfig};

use crate::commands::server_under_test::{self, SearchProgressObserver, ServerUnderTest};
use crate::failure::CommandFailure;
use crate::output::{self, ResultDestination};
use crate::result_store::StoreResultArgs;

/// UDP port of the server on loopback; an unprivileged user cannot bind port 123.
const LOOPBACK_PORT: u16 = 12_300;

/// Demonstrate a time server and its capacity on this host.
///
/// Creates two lab hosts (network namespaces joined by a virtual link), starts one server after
/// another in one of them, and searches from the other for the highest rate that each answers
/// without loss. The servers are: threads that share one socket; threads with a socket each, 1, 2,
/// 4 and so on up to the number of cores; XDP. Without the privilege to create lab hosts, the demo
/// uses sockets on loopback and reports what it did not run.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Approximate duration of the load on each server.
    #[arg(long, value_name = "TIME", value_parser = crate::values::positive_duration, default_value = "5s")]
    time: Duration,
    /// Write the result to FILE as JSON; '-' writes it to standard output instead of the table.
    #[arg(long, value_name = "FILE", default_value = "result.json")]
    json: PathBuf,
    /// Write an HTML report to FILE.
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    html: PathBuf,
    #[command(flatten)]
    store_args: StoreResultArgs,
}

/// Server configuration to measure: name in the result, and arguments of `horolog serve`.
struct DemoServerConfig {
    label: String,
    arguments: Vec<String>,
}

/// Environment in which server and generator run.
enum DemoEnvironment {
    /// Two lab hosts.
    Lab(Lab),
    /// Loopback interface, with the reason why lab hosts cannot be created.
    Loopback(String),
}

pub(crate) fn run(args: &DemoArgs) -> Result<(), CommandFailure> {
    let quiet = output::is_stdout(&args.json);
    crate::files::require_distinct_files(&[
        ("--json", Some(&args.json)),
        ("--html", Some(&args.html)),
    ])?;
    let (json, page) = (ResultDestination::open(&args.json)?, ResultDestination::open(&args.html)?);
    output::install_interrupt_handler()?;
    let (environment, started) = (DemoEnvironment::open()?, rfc3339_now());
    let mut findings = environment.findings();
    for finding in &findings {
        output::print_note(&format!("horolog: {}; {}", finding.message, finding.advice));
    }
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut candidates: Vec<DemoCandidateResult> = Vec::new();
    // Load engine of the first measurement, with which the others run too.
    let mut engine = None;
    for server_config in environment.server_configs(cores) {
        match measure_candidate(&environment, &server_config, engine, args.time) {
            Ok(candidate) => {
                engine = Some(candidate.load.engine);
                candidates.push(candidate);
            }
            Err(failure) if candidates.is_empty() => return Err(failure),
            Err(failure) => findings.push(skipped_finding(&server_config, &failure)),
        }
        if output::check_stop_request().is_break() {
            break;
        }
    }
    let result = DemoResult {
        schema: DEMO_SCHEMA.to_owned(),
        started,
        command: output::command_line(),
        host: Host::read(),
        candidates,
        findings,
    };
    let written = [json.write(&to_json(&result)), page.write(&result.page())];
    args.store_args.store_result(&result, written.iter().any(Result::is_err));
    // After the files, so that an error on standard output does not prevent them; errors of the
    // files are returned after the table.
    if !quiet {
        output::print_line(&result.text(&output::table_style()))?;
    }
    written.into_iter().collect::<Result<(), _>>()?;
    let (json, html) = (args.json.display(), args.html.display());
    output::print_note(&format!("horolog: wrote {json} and {html}"));
    Ok(())
}

fn skipped_finding(server_config: &DemoServerConfig, failure: &CommandFailure) -> Finding {
    Finding {
        code: FindingCode::EngineFallback,
        severity: Severity::Warning,
        message: format!("{} skipped: {failure}", server_config.label),
        advice: "see the message for what it needs".to_owned(),
        trial: None,
    }
}

impl DemoEnvironment {
    fn open() -> Result<Self, CommandFailure> {
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        match Lab::new(&LabConfig { queues: cores, ..LabConfig::default() }) {
            Ok(lab) => Ok(Self::Lab(lab)),
            Err(error @ LabError::NotPermitted) => Ok(Self::Loopback(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    fn findings(&self) -> Vec<Finding> {
        match self {
            Self::Lab(_) => Vec::new(),
            Self::Loopback(reason) => vec![Finding {
                code: FindingCode::EngineFallback,
                severity: Severity::Warning,
                message: "lab hosts, XDP and the in-kernel generator skipped".to_owned(),
                advice: reason.clone(),
                trial: None,
            }],
        }
    }

    fn server_address(&self) -> SocketAddr {
        match self {
            Self::Lab(lab) => SocketAddr::new(lab.server().first_interface().ipv4.into(), 123),
            Self::Loopback(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), LOOPBACK_PORT),
        }
    }

    fn server_configs(&self, cores: usize) -> Vec<DemoServerConfig> {
        let server_config = |label: String, arguments: &[&str]| DemoServerConfig {
            label,
            arguments: arguments.iter().map(ToString::to_string).collect(),
        };
        let count = |threads: usize| match threads {
            1 => "1 thread".to_owned(),
            _ => format!("{threads} threads"),
        };
        let all = cores.to_string();
        let mut configs = vec![server_config(
            format!("shared socket, {}", count(cores)),
            &["--engine", "socket", "--dispatch", "shared-lock", "--threads", &all],
        )];
        // Powers of two below the number of cores, and all cores.
        let mut threads = vec![cores];
        threads.extend((0..).map(|power| 1 << power).take_while(|&threads| threads < cores));
        threads.sort_unstable();
        configs.extend(threads.into_iter().map(|threads| {
            let number = threads.to_string();
            server_config(
                format!("sockets, {}", count(threads)),
                &["--engine", "socket", "--threads", &number],
            )
        }));
        if matches!(self, Self::Lab(_)) {
            // XDP_TX needs an XDP program at the other end of the veth pair; the generator has one.
            let reply = ["--xdp-reply", "transmit"];
            configs.push(server_config(
                "XDP, in-kernel".to_owned(),
                &["--engine", "xdp", reply[0], reply[1], "--threads", "1"],
            ));
        }
        configs
    }

    /// Runs `work` in the network namespace of the load generator, or directly on loopback.
    fn run_at_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, CommandFailure> {
        match self {
            Self::Lab(lab) => Ok(lab.client().run(work)?),
            Self::Loopback(_) => Ok(work()),
        }
    }
}

/// Starts a server, searches for its highest rate without loss, and returns the result.
fn measure_candidate(
    environment: &DemoEnvironment,
    server_config: &DemoServerConfig,
    engine: Option<LoadEngineKind>,
    time: Duration,
) -> Result<DemoCandidateResult, CommandFailure> {
    let server = start_server(environment, server_config)?;
    let mut options = LoadOptions::new(
        server_under_test::target_name(environment.server_address())?,
        search_job(time),
    );
    options.engine = engine;
    options.command = output::command_line();
    if let DemoEnvironment::Lab(lab) = environment {
        options.namespaces = vec![lab.server().netns.clone()];
    }
    options.counter_source = Some(server.counter_source());
    let mut observer = SearchProgressObserver::named(format!("{}: ", server_config.label));
    let load: Result<LoadResult, LoadError> =
        environment.run_at_client(|| LoadRun::prepare(options)?.run(&mut observer))?;
    observer.finish();
    let server_command = server.command.clone();
    let candidate =
        DemoCandidateResult { label: server_config.label.clone(), server_command, load: load? };
    if candidate.load.search.is_some() {
        let rate = horolog_report::highest(&candidate.load);
        output::print_note(&format!("horolog: {}: {rate} without loss", candidate.label));
    }
    Ok(candidate)
}

/// Returns a search whose trials take about `time` in total.
fn search_job(time: Duration) -> LoadProcedure {
    let mut config = SearchConfig::new(GoalLossRatio::NDR, 1e3, 20e6);
    // With final trials of 1 s, the default, a search sends for about 10 s.
    output::scale_search(&mut config, time / 10);
    LoadProcedure::Search { kind: CapacitySearchGoal::Ndr, config }
}

fn start_server(
    environment: &DemoEnvironment,
    server_config: &DemoServerConfig,
) -> Result<ServerUnderTest, CommandFailure> {
    let address = environment.server_address().to_string();
    let mut arguments: Vec<String> =
        ["--local", "--stratum", "1", "--listen", &address].map(str::to_owned).into();
    arguments.extend(server_config.arguments.iter().cloned());
    let program = ServerUnderTest::program_path()?;
    let command = match environment {
        DemoEnvironment::Lab(lab) => lab.server().command(&program),
        DemoEnvironment::Loopback(_) => Command::new(&program),
    };
    ServerUnderTest::start(command, &arguments)
}
