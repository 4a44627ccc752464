//! Demo: comparison of the capacities of several server configurations, each measured by
//! the same search between two lab hosts or on loopback.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::Duration;

use horolog_lab::{Lab, LabConfig, LabError};
use horolog_load::{LoadError, LoadOptions, LoadProcedure, LoadRun};
use horolog_record::{
    CapacitySearchGoal, DEMO_SCHEMA, DemoCandidateResult, DemoResult, Finding, FindingCode, Host,
    LoadEngineKind, LoadResult, Severity, rfc3339_now,
};
use horolog_stats::{GoalLossRatio, SearchConfig};
use horolog_sys::explain::explain_line;

use crate::observer::LoadTrialObserver;
use crate::server_under_test::{self, ServerUnderTest};
use crate::{ExperimentError, ExperimentObserver};

/// UDP port of the server on loopback; an unprivileged user cannot bind port 123.
const LOOPBACK_PORT: u16 = 12_300;

/// Settings of the demo.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Approximate duration of the load on each server.
    pub load_duration: Duration,
    /// Command line, for the result.
    pub command: Vec<String>,
}

/// Server configuration to measure: name in the result, and arguments of `horolog serve`.
struct DemoServerConfig {
    label: String,
    arguments: Vec<String>,
}

/// Options and environment of the demo, shared by the measurements of all servers.
struct Demo<'a> {
    options: &'a DemoOptions,
    observer: &'a dyn ExperimentObserver,
    environment: DemoEnvironment,
}

/// Environment in which server and generator run.
enum DemoEnvironment {
    /// Two lab hosts.
    Lab(Lab),
    /// Loopback interface, with the reason why lab hosts cannot be created.
    Loopback(String),
}

/// Runs the demo.
pub fn run(
    options: &DemoOptions,
    observer: &dyn ExperimentObserver,
) -> Result<DemoResult, ExperimentError> {
    let demo = Demo { options, observer, environment: DemoEnvironment::open()? };
    let (started, mut findings) = (rfc3339_now(), demo.environment.findings());
    for finding in &findings {
        observer.note(&format!("{}; {}", finding.message, finding.advice));
    }
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut candidates: Vec<DemoCandidateResult> = Vec::new();
    // Load engine of the first measurement, with which the others run too.
    let mut engine = None;
    for server_config in demo.environment.server_configs(cores) {
        match demo.measure_candidate(&server_config, engine) {
            Ok(candidate) => {
                engine = Some(candidate.load.engine);
                candidates.push(candidate);
            }
            Err(error) if candidates.is_empty() => return Err(error),
            Err(error) => findings.push(skipped_finding(&server_config, &error)),
        }
        if observer.flow().is_break() {
            break;
        }
    }
    Ok(DemoResult {
        schema: DEMO_SCHEMA.to_owned(),
        started,
        command: options.command.clone(),
        host: Host::read(),
        candidates,
        findings,
    })
}

fn skipped_finding(server_config: &DemoServerConfig, error: &ExperimentError) -> Finding {
    let reason = error.to_string().replace('\n', " ");
    Finding {
        code: FindingCode::EngineFallback,
        severity: Severity::Warning,
        message: format!("{} skipped: {}", server_config.label, explain_line(&reason)),
        advice: "see the message for what it needs".to_owned(),
        trial: None,
    }
}

impl DemoEnvironment {
    fn open() -> Result<Self, ExperimentError> {
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
    fn run_at_client<T: Send>(
        &self,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, ExperimentError> {
        match self {
            Self::Lab(lab) => Ok(lab.client().run(work)?),
            Self::Loopback(_) => Ok(work()),
        }
    }
}

impl Demo<'_> {
    /// Starts a server, searches for its highest rate without loss, and returns the result.
    fn measure_candidate(
        &self,
        server_config: &DemoServerConfig,
        engine: Option<LoadEngineKind>,
    ) -> Result<DemoCandidateResult, ExperimentError> {
        let server = self.start_server(server_config)?;
        let mut options = LoadOptions::new(
            server_under_test::target_name(self.environment.server_address())?,
            search_job(self.options.load_duration),
        );
        options.engine = engine;
        options.command.clone_from(&self.options.command);
        if let DemoEnvironment::Lab(lab) = &self.environment {
            options.namespaces = vec![lab.server().netns.clone()];
        }
        options.counter_source = Some(server.counter_source());
        self.observer.measurement_started(format!("{}: ", server_config.label));
        let mut observer = LoadTrialObserver::new(self.observer);
        let load: Result<LoadResult, LoadError> =
            self.environment.run_at_client(|| LoadRun::prepare(options)?.run(&mut observer))?;
        self.observer.measurement_ended();
        let server_command = server.command.clone();
        let candidate =
            DemoCandidateResult { label: server_config.label.clone(), server_command, load: load? };
        if candidate.load.search.is_some() {
            let rate = horolog_report::highest(&candidate.load);
            self.observer.note(&format!("{}: {rate} without loss", candidate.label));
        }
        Ok(candidate)
    }

    fn start_server(
        &self,
        server_config: &DemoServerConfig,
    ) -> Result<ServerUnderTest, ExperimentError> {
        let address = self.environment.server_address().to_string();
        let mut arguments: Vec<String> =
            ["--local", "--stratum", "1", "--listen", &address].map(str::to_owned).into();
        arguments.extend(server_config.arguments.iter().cloned());
        let program = ServerUnderTest::program_path()?;
        let command = match &self.environment {
            DemoEnvironment::Lab(lab) => lab.server().command(&program),
            DemoEnvironment::Loopback(_) => Command::new(&program),
        };
        ServerUnderTest::start(command, &arguments)
    }
}

/// Returns a search whose trials take about `time` in total.
fn search_job(time: Duration) -> LoadProcedure {
    let mut config = SearchConfig::new(GoalLossRatio::NDR, 1e3, 20e6);
    // With final trials of 1 s, the default, a search sends for about 10 s.
    config.scale(time / 10);
    LoadProcedure::Search { kind: CapacitySearchGoal::Ndr, config }
}
