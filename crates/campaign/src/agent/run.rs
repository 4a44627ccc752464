//! An agent's program: the machine that decides, the processes that do, the spool that keeps, and
//! the broker that may be gone, brought together by events in one queue. What fails here is said
//! and lived with; only what keeps an agent from being one ends it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{interval, sleep};

use super::hands::{self, Hands};
use super::machine::{Act, Character, Machine, Memory, Now};
use super::post::{self, Shared};
use crate::id::IdError;
use crate::instruction::{Instruction, InstructionError};
use crate::job::{self, Means};
use crate::message::{Content, Report};
use crate::nats::{Broker, NatsError, Store};
use crate::order::{Abilities, Order, PROTOCOL};
use crate::policy::Policy;
use crate::spool::{Entry, Limits, Spool, SpoolError};
use crate::{AgentName, CampaignId};

/// How long an agent that starts waits for a broker that does not answer.
const BROKER_PATIENCE: Duration = Duration::from_secs(30);
const BROKER_RETRY: Duration = Duration::from_secs(1);
/// How often time alone is looked at.
const TICK: Duration = Duration::from_millis(100);
/// How long what runs may take to end with its results when the agent is told to end, and how long
/// they are then delivered.
const END_PATIENCE: Duration = Duration::from_secs(15);
const DELIVERY_PATIENCE: Duration = Duration::from_secs(5);
/// News of progress that wait to be sent, at most.
const MURMURS_MAX: usize = 256;

/// What an agent is.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Where it is told what to do.
    pub broker: Broker,
    /// Its name.
    pub name: AgentName,
    /// Its version of horolog.
    pub version: String,
    /// What its owner says of it.
    pub labels: BTreeMap<String, String>,
    /// Where others reach it, the best address first.
    pub addresses: Vec<IpAddr>,
    /// What it can do.
    pub abilities: Abilities,
    /// What it may run.
    pub policy: Policy,
    /// Where it keeps what it has to tell.
    pub state: PathBuf,
    /// The time server that its clock is compared with; the kernel is asked where it is absent.
    pub clock_server: Option<String>,
    /// The `horolog` that it runs.
    pub program: PathBuf,
}

/// Whoever runs an agent.
#[derive(Clone, Copy)]
pub struct Owner<'a> {
    /// Is told what may be of interest, a line each.
    pub says: &'a dyn Fn(&str),
    /// Is told that the agent is there.
    pub ready: &'a dyn Fn(),
    /// Says whether it is to go on.
    pub flow: &'a dyn Fn() -> ControlFlow<()>,
}

/// Why an agent is none; one line.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The broker cannot be used.
    #[error(transparent)]
    Nats(#[from] NatsError),
    /// What it has to tell cannot be kept.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// Another one has taken its place.
    #[error("another agent was started later with the name {0}; give each its own with --name")]
    Replaced(AgentName),
    /// A name that cannot be.
    #[error(transparent)]
    Name(#[from] IdError),
    /// The system gives no thread or timer.
    #[error("the system refuses what an agent needs: {0}")]
    System(#[from] io::Error),
}

/// What comes to be known.
pub(super) enum Event {
    /// What lies at the broker for this agent has changed.
    Seen(Result<Option<Instruction>, InstructionError>),
    /// Something of a campaign's processes.
    Job(CampaignId, job::Event),
    /// To be said to the owner.
    Say(String),
    /// A later agent has this one's name.
    Replaced,
}

/// Runs an agent until its owner says that it is to end.
///
/// # Errors
///
/// It cannot begin, or another one has taken its place.
pub fn run(options: AgentOptions, owner: Owner<'_>) -> Result<(), AgentError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(Box::pin(live(options, owner)));
    // A look at the clock may still be waiting for its server.
    runtime.shutdown_background();
    ended
}

async fn live(options: AgentOptions, owner: Owner<'_>) -> Result<(), AgentError> {
    let (spool, spoilt) = Spool::open(&options.state, Limits::default())?;
    for path in spoilt {
        (owner.says)(&format!("{} was spoilt on the disk; its report is lost", path.display()));
    }
    let jobs = hands::directory(&options.state)?;
    let memory: Memory = spool.state()?.unwrap_or_default();
    let Some(store) = Box::pin(reach(&options, owner)).await? else { return Ok(()) };
    let character = Character {
        name: options.name.clone(),
        version: options.version.clone(),
        policy: options.policy.clone(),
    };
    let (machine, acts) = Machine::new(character, memory, (utc_ns() / 1_000_000) as u64);
    let clock = post::clock_now(&options).await;
    if clock.is_none() {
        (owner.says)(&clock_unknown(options.clock_server.as_deref()));
    }
    let shared = Shared::new(options, store, machine.incarnation(), spool, clock)?;
    Agent::start(Arc::new(shared), machine, jobs, owner).live(acts).await
}

/// Why campaigns do without this agent.
fn clock_unknown(server: Option<&str>) -> String {
    let (why, what) = match server {
        Some(server) => (
            format!("{server} does not say how right this clock is"),
            "name another --clock-server",
        ),
        None => (
            "nothing is known of this machine's clock: no time service says that it keeps it"
                .into(),
            "start one, such as chronyd with rtcsync, or give --clock-server",
        ),
    };
    format!("warning: {why}, and campaigns give such an agent nothing to do; {what}")
}

/// Connects. One that is wrong ends it; one that is not there is waited for a little.
async fn reach(options: &AgentOptions, owner: Owner<'_>) -> Result<Option<Store>, NatsError> {
    let Broker { replicas, .. } = options.broker;
    let started = Instant::now();
    let mut has_said = false;
    while (owner.flow)().is_continue() {
        // Nobody else of those who may be agents hears the answers to this one.
        let inbox = format!("horolog-agent.{}", options.name);
        let client = options.broker.connect(&format!("horolog {}", options.name), &inbox).await;
        let opened = match client {
            Ok(client) => Store::open(client, &options.broker.shown(), replicas).await,
            Err(error) => Err(error),
        };
        match opened {
            Err(error @ (NatsError::Unreachable { .. } | NatsError::Late(_)))
                if started.elapsed() < BROKER_PATIENCE =>
            {
                if !has_said {
                    (owner.says)(&format!("{error}; waiting for it"));
                }
                has_said = true;
                sleep(BROKER_RETRY).await;
            }
            opened => return opened.map(Some),
        }
    }
    Ok(None)
}

pub(super) fn utc_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i64
}

struct Agent<'a> {
    shared: Arc<Shared>,
    machine: Machine,
    owner: Owner<'a>,
    born: Instant,
    hands: Option<Hands>,
    /// Where jobs have their files.
    jobs: PathBuf,
    to: UnboundedSender<Event>,
    events: UnboundedReceiver<Event>,
    murmurs: mpsc::Sender<(CampaignId, Vec<u8>)>,
    /// Reports made by this agent.
    number: u64,
    /// What the disk had no room for.
    unkept: VecDeque<Report>,
    replaced: bool,
}

impl<'a> Agent<'a> {
    fn start(shared: Arc<Shared>, machine: Machine, jobs: PathBuf, owner: Owner<'a>) -> Self {
        let (to, events) = mpsc::unbounded_channel();
        let (murmurs, heard) = mpsc::channel(MURMURS_MAX);
        tokio::spawn(post::beat(shared.clone(), to.clone()));
        tokio::spawn(post::watch(shared.clone(), to.clone()));
        tokio::spawn(post::deliver(shared.clone(), to.clone()));
        tokio::spawn(post::mind_clock(shared.clone()));
        tokio::spawn(murmur(shared.clone(), heard));
        Self {
            shared,
            machine,
            owner,
            born: Instant::now(),
            hands: None,
            jobs,
            to,
            events,
            murmurs,
            number: 0,
            unkept: VecDeque::new(),
            replaced: false,
        }
    }

    fn now(&self) -> Now {
        Now { utc_ns: utc_ns(), monotonic_ns: self.born.elapsed().as_nanos() as u64 }
    }

    async fn live(mut self, acts: Vec<Act>) -> Result<(), AgentError> {
        self.act(acts);
        (self.owner.ready)();
        (self.owner.says)(&format!("agent {} is ready", self.shared.options.name));
        let mut ticks = interval(TICK);
        while (self.owner.flow)().is_continue() && !self.replaced {
            self.turn(&mut ticks).await;
        }
        self.end(&mut ticks).await;
        if self.replaced {
            return Err(AgentError::Replaced(self.shared.options.name.clone()));
        }
        // It is gone in a moment anyway where this does not get through.
        let _ = self.shared.store.retire(&self.shared.options.name).await;
        Ok(())
    }

    /// Ends what runs, and delivers what it brought as far as the broker takes it. The rest is
    /// delivered after the next start.
    async fn end(&mut self, ticks: &mut tokio::time::Interval) {
        let acts = self.machine.end();
        self.act(acts);
        let started = Instant::now();
        while self.machine.busy().is_some() && started.elapsed() < END_PATIENCE {
            self.turn(ticks).await;
        }
        let started = Instant::now();
        while !self.shared.spool().is_empty() && started.elapsed() < DELIVERY_PATIENCE {
            ticks.tick().await;
        }
    }

    /// Waits for one thing to happen, and does what follows from it.
    async fn turn(&mut self, ticks: &mut tokio::time::Interval) {
        let acts = tokio::select! {
            Some(event) = self.events.recv() => self.hear(event),
            _ = ticks.tick() => {
                self.keep_the_unkept();
                self.machine.tick(self.now())
            }
        };
        self.act(acts);
    }

    fn hear(&mut self, event: Event) -> Vec<Act> {
        match event {
            Event::Seen(seen) => {
                let room = self.shared.spool().has_room().map_err(|error| error.to_string());
                self.machine.look(seen, room, self.now())
            }
            // What still comes of one that is over is not this one's.
            Event::Job(campaign, event) if self.machine.busy() == Some(&campaign) => match event {
                job::Event::News(news) => self.machine.news(news, self.now()),
                job::Event::Outcome(outcome) => self.machine.outcome_of(outcome),
            },
            Event::Job(..) => Vec::new(),
            Event::Say(text) => vec![Act::Say(text)],
            Event::Replaced => {
                self.replaced = true;
                Vec::new()
            }
        }
    }

    fn act(&mut self, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Tell(campaign, content) => self.tell(campaign, content),
                Act::Murmur(campaign, news) => {
                    let bytes = serde_json::to_vec(&news).unwrap_or_default();
                    // Where nobody takes them they may be lost.
                    let _ = self.murmurs.try_send((campaign, bytes));
                }
                Act::Begin(order) => self.begin(order),
                Act::Start(at_ns) => self.hands(|hands| hands.start(at_ns)),
                Act::Finish => self.hands(Hands::finish),
                Act::Abandon => self.hands(Hands::abandon),
                Act::Leave => self.hands = None,
                Act::Keep => self.keep(),
                Act::Say(text) => (self.owner.says)(&text),
            }
        }
        self.shared.set_busy(self.machine.busy());
    }

    fn hands(&self, act: impl FnOnce(&Hands)) {
        if let Some(hands) = &self.hands {
            act(hands);
        }
    }

    /// Keeps what has to be known after a restart, unless something that it takes for told is not
    /// on the disk: then a restart tells of it.
    fn keep(&mut self) {
        if !self.unkept.is_empty() {
            return;
        }
        let kept = self.shared.spool().keep_state(&self.machine.memory());
        if let Err(error) = kept {
            (self.owner.says)(&error.to_string());
        }
    }

    fn tell(&mut self, campaign: CampaignId, content: Content) {
        self.number += 1;
        let report = Report {
            protocol: PROTOCOL,
            campaign,
            agent: self.shared.options.name.clone(),
            incarnation: self.machine.incarnation(),
            number: self.number,
            content,
        };
        if let Err(error) = self.put(&report) {
            (self.owner.says)(&format!("{error}; trying again"));
            self.unkept.push_back(report);
        }
    }

    /// Puts a report into the spool. A result that is larger than any may be is left out, and said.
    fn put(&self, report: &Report) -> Result<(), SpoolError> {
        let packed = report.pack().or_else(|_| without_result(report).pack()).unwrap_or_default();
        let Report { campaign, agent, .. } = report.clone();
        self.shared.spool().put(&Entry { id: report.id(), campaign, agent, packed })?;
        self.shared.put.notify_one();
        Ok(())
    }

    fn keep_the_unkept(&mut self) {
        let had = !self.unkept.is_empty();
        while let Some(report) = self.unkept.pop_front() {
            if self.put(&report).is_err() {
                self.unkept.push_front(report);
                return;
            }
        }
        if had {
            self.keep();
        }
    }

    fn begin(&mut self, order: Order) {
        let campaign = order.campaign.clone();
        let (to, of) = (self.to.clone(), campaign.clone());
        let tell = Arc::new(move |event| drop(to.send(Event::Job(of.clone(), event))));
        let directory = self.jobs.clone();
        let means = Means { program: self.shared.options.program.clone(), directory, host: None };
        self.hands = Some(Hands::begin(order, means, self.shared.clock(), tell));
    }
}

fn without_result(report: &Report) -> Report {
    let mut report = report.clone();
    if let Content::Outcome(outcome) = &mut report.content {
        outcome.result = None;
        outcome.stderr_tail.push_str("\nhorolog: the result is too large to be sent, and left out");
    }
    report
}

/// Sends on what is said by the way.
async fn murmur(shared: Arc<Shared>, mut heard: mpsc::Receiver<(CampaignId, Vec<u8>)>) {
    while let Some((campaign, bytes)) = heard.recv().await {
        shared.store.murmur(&campaign, &shared.options.name, bytes).await;
    }
}
