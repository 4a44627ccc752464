//! Testbed of campaign scenarios: a NATS server that can be killed and restarted with its storage,
//! agents in lab hosts, a controller, plans of measurements without network, and helpers for
//! results. The output of each process is written to a file, so that none blocks on a full pipe.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_sys::namespace::die_with_parent;
use horolog_wire::prefix::Prefix;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Engine, Server, binary, signal};
use crate::scenario::in_path;

/// Longer than any operation here that is not a measurement.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Port of the NATS server.
pub(crate) const NATS_PORT: u16 = 4_222;

/// Program whose stderr is written to a file. Ends when dropped.
pub(crate) struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    pub(crate) fn start(command: &mut Command, log: PathBuf) -> Result<Self> {
        // Truncates the output of an earlier program.
        let stderr = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        let child = die_with_parent(command).spawn()?;
        Ok(Self { child, log })
    }

    /// Returns the output so far.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the output contains `text`.
    pub(crate) fn await_output(&mut self, text: &str) -> Result<()> {
        let started = Instant::now();
        while !self.output().contains(text) {
            if let Some(status) = self.child.try_wait()? {
                ensure!(self.output().contains(text), "ended with {status}: {}", self.output());
            }
            ensure!(started.elapsed() < TIMEOUT, "no '{text}' in the output: {}", self.output());
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Waits for the exit of the program.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(started.elapsed() < TIMEOUT, "the program does not exit: {}", self.output());
            thread::sleep(POLL_INTERVAL);
        }
    }

    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        signal(&self.child, name)
    }

    /// Kills the program, like a crash.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The program may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// NATS server in the client host.
pub(crate) struct NatsServer {
    directory: TempDir,
    program: Option<Program>,
}

impl NatsServer {
    /// Starts a server with `JetStream` and without authentication.
    pub(crate) fn start_open(host: &LabHost) -> Result<Self> {
        Self::start(host, "")
    }

    /// Starts a server with `JetStream` and the given additional configuration.
    pub(crate) fn start(host: &LabHost, configuration: &str) -> Result<Self> {
        let directory = TempDir::new()?;
        let store = directory.path().join("store");
        Self::start_bare(
            host,
            directory,
            &format!("jetstream {{ store_dir: \"{}\" }}\n{configuration}", store.display()),
        )
    }

    /// Starts a server with only the given configuration, besides the listen address.
    pub(crate) fn start_bare(
        host: &LabHost,
        directory: TempDir,
        configuration: &str,
    ) -> Result<Self> {
        let text = format!("listen: \"0.0.0.0:{NATS_PORT}\"\n{configuration}\n");
        fs::write(directory.path().join("nats.conf"), text)?;
        let mut nats = Self { directory, program: None };
        nats.restart(host)?;
        Ok(nats)
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Starts a server that is not running, and waits until it accepts connections.
    pub(crate) fn restart(&mut self, host: &LabHost) -> Result<()> {
        let program = in_path("nats-server").context("no nats-server in PATH")?;
        let mut command = host.command(program);
        command.arg("-c").arg(self.directory.path().join("nats.conf"));
        let log = self.directory.path().join("log");
        let mut program = Program::start(&mut command, log)?;
        program.await_output("Server is ready")?;
        self.program = Some(program);
        Ok(())
    }

    /// Kills the server, like a crash.
    pub(crate) fn crash(&mut self) -> Result<()> {
        self.program.take().context("the server is not running")?.kill()
    }
}

/// Broker, time server and agents, each agent in its own lab host: agent `nK` in server host K, all
/// else in the client host.
pub(crate) struct CampaignTestbed {
    pub(crate) agents: BTreeMap<usize, Program>,
    pub(crate) nats: NatsServer,
    _time: Server,
    pub(crate) directory: TempDir,
    pub(crate) lab: Lab,
}

impl CampaignTestbed {
    /// Starts the testbed with `agents` agents, and waits until they are ready.
    pub(crate) fn new(agents: usize) -> Result<Self> {
        let mut field = Self::without_agents(agents, NatsServer::start_open)?;
        // All at once, because each queries the time server before it is ready.
        for number in 1..=agents {
            field.launch_agent(number, &[])?;
        }
        field.await_agents()?;
        Ok(field)
    }

    /// Starts the testbed with hosts for `agents` agents, but no agents.
    pub(crate) fn without_agents(
        agents: usize,
        nats: impl FnOnce(&LabHost) -> Result<NatsServer>,
    ) -> Result<Self> {
        let links = Prefix::new([192, 0, 2, 0].into(), 24)?;
        let config = LabConfig {
            hosts: agents + 1,
            ipv6: false,
            client_networks: vec![links],
            ..LabConfig::default()
        };
        let lab = Lab::new(&config)?;
        let host = lab.client();
        // The client host forwards packets between agents.
        host.run(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1"))??;
        let nats = nats(host)?;
        let listen: Vec<_> = host.interfaces.iter().map(|port| (port.ipv4, 123).into()).collect();
        let time = Server::start(host, Engine::Socket, &listen, &[])?;
        let directory = TempDir::new()?;
        Ok(Self { agents: BTreeMap::new(), nats, _time: time, directory, lab })
    }

    /// Returns the URL at which agent K reaches the broker.
    pub(crate) fn broker_url(&self, number: usize) -> String {
        format!("nats://{}:{NATS_PORT}", self.lab.client().interfaces[number - 1].ipv4)
    }

    /// Returns the command of agent K.
    pub(crate) fn agent(&self, number: usize, arguments: &[&str]) -> Result<Command> {
        let time = self.lab.client().interfaces[number - 1].ipv4.to_string();
        let state = self.directory.path().join(format!("state{number}")).display().to_string();
        let mut command = self.lab.host(number).command(binary()?);
        command.args(["campaign", "agent", "--name", &format!("n{number}")]);
        command.args(["--label", &format!("number={number}")]);
        let usual =
            [("--nats", self.broker_url(number)), ("--clock-server", time), ("--state", state)];
        for (flag, value) in usual {
            if !arguments.contains(&flag) {
                command.args([flag, &value]);
            }
        }
        command.args(arguments);
        Ok(command)
    }

    /// Starts agent K, and waits until it is ready.
    pub(crate) fn start_agent(&mut self, number: usize, arguments: &[&str]) -> Result<()> {
        self.launch_agent(number, arguments)?;
        self.agents.get_mut(&number).context("no such agent")?.await_output("is ready")
    }

    fn launch_agent(&mut self, number: usize, arguments: &[&str]) -> Result<()> {
        let log = self.directory.path().join(format!("agent{number}.log"));
        let program = Program::start(&mut self.agent(number, arguments)?, log)?;
        self.agents.insert(number, program);
        Ok(())
    }

    fn await_agents(&mut self) -> Result<()> {
        self.agents.values_mut().try_for_each(|agent| agent.await_output("is ready"))
    }

    /// Kills agent K, like a crash.
    pub(crate) fn kill_agent(&mut self, number: usize) -> Result<()> {
        self.agents.remove(&number).context("no such agent")?.kill()
    }

    /// Returns the command of a controller, and the path of its result.
    pub(crate) fn controller(&self, arguments: &[&str]) -> Result<(Command, PathBuf)> {
        let result = self.directory.path().join("result.json");
        let mut command = self.lab.client().command(binary()?);
        command.args(["campaign", "run", "--json"]).arg(&result);
        if !arguments.contains(&"--nats") {
            command.args(["--nats", &format!("nats://127.0.0.1:{NATS_PORT}")]);
        }
        command.args(arguments);
        Ok((command, result))
    }

    /// Starts a controller of a plan.
    pub(crate) fn run(&self, plan: &str, arguments: &[&str]) -> Result<Program> {
        let path = self.directory.path().join("plan.toml");
        fs::write(&path, plan)?;
        let (mut command, _) = self.controller(arguments)?;
        Program::start(command.arg(path), self.directory.path().join("controller.log"))
    }

    /// Starts a controller that resumes the campaign of another one.
    pub(crate) fn resume(&self, campaign: &str, arguments: &[&str]) -> Result<Program> {
        let (mut command, _) = self.controller(arguments)?;
        let log = self.directory.path().join("resumed.log");
        Program::start(command.args(["--resume", campaign]), log)
    }

    /// Waits for the end of a controller, and reads its result.
    pub(crate) fn result(&self, controller: &mut Program, status: i32) -> Result<Value> {
        let ended = controller.wait()?;
        ensure!(ended.code() == Some(status), "{ended}: {}", controller.output());
        let text = fs::read(self.directory.path().join("result.json"))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Sets the link of agent K up or down.
    pub(crate) fn set_link(&self, number: usize, up: bool) -> Result<()> {
        let host = self.lab.client();
        let index = host.interfaces[number - 1].index;
        let mut netlink = host.netlink()?;
        if up {
            netlink.set_link_up(index)?;
        } else {
            netlink.set_link_down(index)?;
        }
        Ok(())
    }
}

/// Returns the identifier of a controller's campaign.
pub(crate) fn campaign_id(controller: &mut Program) -> Result<String> {
    controller.await_output("horolog: campaign ")?;
    let output = controller.output();
    let name = output.split("horolog: campaign ").nth(1).and_then(|rest| rest.split(':').next());
    Ok(name.context("no campaign identifier in the output")?.to_owned())
}

/// Returns a plan in which `agents` agents measure their timers for `seconds` seconds.
pub(crate) fn timer_plan(agents: usize, seconds: u32) -> String {
    format!(
        r#"
schema = "horolog.plan/2"
name = "timers"
duration-max = "{}s"
max-offset = "100ms"

[[role]]
name = "timer"
kind = "host-timer"
count = {agents}
[role.options]
time = "{seconds}s"
"#,
        seconds + 20
    )
}
