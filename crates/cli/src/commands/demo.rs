//! `horolog demo`: private hosts, one server configuration after another in one of them, the same
//! search against each from the other, and the comparison.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use clap::Args;
use horolog_lab::{Lab, LabConfig, LabError};
use horolog_load::{Job, Load, LoadError, LoadOptions};
use horolog_record::{
    Candidate, Code, DEMO_SCHEMA, DemoResult, Engine, Finding, Host, LoadResult, SearchKind,
    Severity, rfc3339_now,
};
use horolog_report::{html, table, to_json};
use horolog_stats::{LossGoal, SearchConfig};

use crate::commands::contest::{self, Follower, RunningServer};
use crate::failure::Failure;
use crate::keep::KeepArgs;
use crate::output::{self, Destination};

/// The port on loopback, where an ordinary user may not take NTP's own.
const LOOPBACK_PORT: u16 = 12_300;

/// Show the main job on this machine: a time server and the load that it takes.
///
/// Makes two private hosts, starts one server after another in one of them (sockets with one thread
/// up to one for each core, sockets behind locks, XDP), and searches from the other for the highest
/// rate that each answers without loss. Without the privilege for private hosts it uses sockets on
/// loopback and says what it left out.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// About how long each server is loaded.
    #[arg(long, value_name = "SECONDS", value_parser = crate::values::positive_duration, default_value = "5")]
    seconds: Duration,
    /// File for the result; - for standard output, instead of the table.
    #[arg(long, value_name = "FILE", default_value = "result.json")]
    json: PathBuf,
    /// File for the page.
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    html: PathBuf,
    #[command(flatten)]
    keep: KeepArgs,
}

/// One server configuration.
struct Contender {
    label: String,
    arguments: Vec<String>,
}

/// Where the demonstration takes place.
enum Stage {
    /// Private hosts.
    Lab(Lab),
    /// This host's loopback interface, and why.
    Loopback(String),
}

pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    let quiet = output::is_stdout(&args.json);
    crate::files::apart(&[("--json", Some(&args.json)), ("--html", Some(&args.html))])?;
    let (json, page) = (Destination::open(&args.json)?, Destination::open(&args.html)?);
    output::end_gently()?;
    let (stage, started) = (Stage::open()?, rfc3339_now());
    let mut findings = stage.findings();
    for finding in &findings {
        output::note(&format!("horolog: {}; {}", finding.message, finding.advice));
    }
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut candidates: Vec<Candidate> = Vec::new();
    // All servers are loaded by the engine that the first one was loaded by.
    let mut engine = None;
    for contender in stage.contenders(cores) {
        match contest(&stage, &contender, engine, args.seconds) {
            Ok(candidate) => {
                engine = Some(candidate.load.engine);
                candidates.push(candidate);
            }
            Err(failure) if candidates.is_empty() => return Err(failure),
            Err(failure) => findings.push(left_out(&contender, &failure)),
        }
        if output::flow().is_break() {
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
    let written = [json.write(&to_json(&result)), page.write(&html::demo(&result))];
    args.keep.keep(&result, written.iter().any(Result::is_err));
    // Behind the files: a full standard output ends the command here, and a file that could not be
    // written takes nothing from the table.
    if !quiet {
        output::line(&table::demo(&result, &output::table_style()))?;
    }
    written.into_iter().collect::<Result<(), _>>()?;
    let (json, html) = (args.json.display(), args.html.display());
    output::note(&format!("horolog: wrote {json} and {html}"));
    Ok(())
}

fn left_out(contender: &Contender, failure: &Failure) -> Finding {
    Finding {
        code: Code::EngineFallback,
        severity: Severity::Warning,
        message: format!("{} was left out: {failure}", contender.label),
        advice: "see there what it needs".to_owned(),
        trial: None,
    }
}

impl Stage {
    fn open() -> Result<Self, Failure> {
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
                code: Code::EngineFallback,
                severity: Severity::Warning,
                message: "private hosts, XDP and the in-kernel generator were left out".to_owned(),
                advice: reason.clone(),
                trial: None,
            }],
        }
    }

    fn server_address(&self) -> SocketAddr {
        match self {
            Self::Lab(lab) => SocketAddr::new(lab.server().port().ipv4.into(), 123),
            Self::Loopback(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), LOOPBACK_PORT),
        }
    }

    fn contenders(&self, cores: usize) -> Vec<Contender> {
        let contender = |label: String, arguments: &[&str]| Contender {
            label,
            arguments: arguments.iter().map(ToString::to_string).collect(),
        };
        let count = |threads: usize| match threads {
            1 => "1 thread".to_owned(),
            _ => format!("{threads} threads"),
        };
        let all = cores.to_string();
        let mut contenders = vec![contender(
            format!("sockets, locks, {}", count(cores)),
            &["--engine", "socket", "--dispatch", "shared-lock", "--threads", &all],
        )];
        // One thread, and then twice as many each time up to all cores.
        let mut threads = vec![cores];
        threads.extend((0..).map(|power| 1 << power).take_while(|&threads| threads < cores));
        threads.sort_unstable();
        contenders.extend(threads.into_iter().map(|threads| {
            let number = threads.to_string();
            contender(
                format!("sockets, {}", count(threads)),
                &["--engine", "socket", "--threads", &number],
            )
        }));
        if matches!(self, Self::Lab(_)) {
            // The generator's own program runs at the other end of the link.
            let reply = ["--xdp-reply", "transmit"];
            contenders.push(contender(
                "XDP, in the kernel".to_owned(),
                &["--engine", "xdp", reply[0], reply[1], "--threads", "1"],
            ));
        }
        contenders
    }

    /// Runs `work` where the load comes from.
    fn at_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        match self {
            Self::Lab(lab) => Ok(lab.client().run(work)?),
            Self::Loopback(_) => Ok(work()),
        }
    }
}

/// Runs one server under the search.
fn contest(
    stage: &Stage,
    contender: &Contender,
    engine: Option<Engine>,
    time: Duration,
) -> Result<Candidate, Failure> {
    let server = start(stage, contender)?;
    let mut options = LoadOptions::new(contest::target(stage.server_address())?, search(time));
    options.engine = engine;
    options.command = output::command_line();
    if let Stage::Lab(lab) = stage {
        options.namespaces = vec![lab.server().netns.clone()];
    }
    options.ask_server = Some(server.asker());
    let mut observer = Follower::named(format!("{}: ", contender.label));
    let load: Result<LoadResult, LoadError> =
        stage.at_client(|| Load::prepare(options)?.run(&mut observer))?;
    observer.finish();
    let server_command = server.command.clone();
    let candidate = Candidate { label: contender.label.clone(), server_command, load: load? };
    if candidate.load.search.is_some() {
        let rate = horolog_report::highest(&candidate.load);
        output::note(&format!("horolog: {}: {rate} without loss", candidate.label));
    }
    Ok(candidate)
}

/// A search that sends for about `time`.
fn search(time: Duration) -> Job {
    let mut config = SearchConfig::new(LossGoal::NDR, 1e3, 20e6);
    // With the usual second for the decisive trials a search sends for about ten.
    output::scale_search(&mut config, time / 10);
    Job::Search { kind: SearchKind::Ndr, config }
}

fn start(stage: &Stage, contender: &Contender) -> Result<RunningServer, Failure> {
    let address = stage.server_address().to_string();
    let mut arguments: Vec<String> =
        ["--local", "--stratum", "1", "--listen", &address].map(str::to_owned).into();
    arguments.extend(contender.arguments.iter().cloned());
    let program = RunningServer::program()?;
    let command = match stage {
        Stage::Lab(lab) => lab.server().command(&program),
        Stage::Loopback(_) => Command::new(&program),
    };
    RunningServer::start(command, &arguments)
}
