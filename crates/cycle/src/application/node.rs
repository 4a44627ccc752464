//! A node of an application under test: a process of its own, told by its standard input what to
//! do. It knows its own faults, since somebody has to make them, and nothing of what is done to
//! others: what it notices it notices by itself.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::thread;

use horolog_conditions::Conditions;
use horolog_record::{HostConditions, TaskScheduling};
use horolog_sys::affinity;
use horolog_sys::shared_region::SharedRegion;
use horolog_sys::socket::Socket;
use horolog_time::{Monotonic, Timestamp};
use serde::{Deserialize, Serialize};

use super::link::Link;
use super::plan::Plan;
use super::stages::Stages;
use crate::entry::Entry;
use crate::load::Load;
use crate::node::mesh::{self, Mesh};
use crate::node::periods::{self, Releases};
use crate::node::{
    Account, Begin, Gate, REGION, Shared, before, next_line, read_line, schedule, write_line,
};
use crate::ring::Writer;
use crate::task::Schedule;

/// What a node is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) plan: Plan,
    /// Its place among all, from 0 on.
    pub(super) node: u16,
    /// By what fixed computation is multiplied.
    pub(super) load: f64,
    /// Whether deep idle states are held off.
    pub(super) hold_awake: bool,
}

/// What it says before it begins, or why it cannot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    pub(super) conditions: HostConditions,
    pub(super) scheduling: TaskScheduling,
    pub(super) unit_ns: f64,
    /// Where it takes messages of other nodes.
    pub(super) messages: SocketAddr,
    /// Where it takes reports.
    pub(super) reports: SocketAddr,
}

/// What all nodes are told when all are ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Go {
    /// The first release, in ns of `CLOCK_MONOTONIC`.
    pub(super) begin_ns: i64,
    /// Where each node takes messages.
    pub(super) peers: Vec<SocketAddr>,
    /// Where reports of each source come from.
    pub(super) sources: Vec<SocketAddr>,
}

/// Does what standard input says until all periods are over.
///
/// # Errors
///
/// When it is told nothing that it understands, or nobody listens.
pub fn serve() -> io::Result<()> {
    let mut input = io::stdin().lock();
    let order: Order = read_line(&mut input)?;
    let region = SharedRegion::inherited(REGION)?;
    let shared = Shared::new(region.words(), 1).ok_or(io::ErrorKind::InvalidInput)?;
    let conditions = Conditions::arrange(order.hold_awake);
    let (told, ready) = mpsc::channel();
    let gate = Gate::new();
    thread::scope(|scope| {
        let name = order.plan.name.clone();
        let (order, gate) = (&order, &gate);
        let working = thread::Builder::new().name(name).spawn_scoped(scope, move || {
            work(order, shared, &told, gate);
            shared.end(0);
        })?;
        let answer: Result<Prepared, String> =
            ready.recv().unwrap_or_else(|_| Err("it ended before it began".to_owned()));
        let answer = answer.map(|prepared| Ready {
            conditions: conditions.record(),
            scheduling: prepared.scheduling,
            unit_ns: prepared.unit_ns,
            messages: prepared.messages,
            reports: prepared.reports,
        });
        // Whatever becomes of it, the scope waits for it.
        drop(working);
        gate.tell(
            write_line(&answer)
                .and_then(|()| if answer.is_ok() { next_line(&mut input) } else { Ok(None) }),
        )
    })
}

/// What is known before it begins.
struct Prepared {
    scheduling: TaskScheduling,
    unit_ns: f64,
    messages: SocketAddr,
    reports: SocketAddr,
}

/// Prepares, tells so, waits, and runs all periods.
fn work(
    order: &Order,
    shared: Shared<'_>,
    told: &mpsc::Sender<Result<Prepared, String>>,
    gate: &Gate<Go>,
) {
    let Sockets { load, messages, account, reports } = match prepare(order) {
        Ok((prepared, sockets)) => {
            // Whoever waits for it is there as long as this thread is.
            let _ = told.send(Ok(prepared));
            sockets
        }
        Err(why) => return drop(told.send(Err(why))),
    };
    let Some(mut go) = gate.wait(shared) else { return };
    let Some(writer) = Writer::new(shared.ring(0)) else { return };
    let begin = Timestamp::from_ns(go.begin_ns);
    let mut link = None;
    if order.plan.nodes > 1 {
        let mut mesh = Mesh::new(messages, order.node, std::mem::take(&mut go.peers));
        shared.tell_latency(0, mesh.acquaint(before(begin)).latency_ns);
        mesh.keep_account(account);
        link = Some(Link::new(mesh, &order.plan, order.node));
    }
    run(order, load, (link, reports), &go, writer, shared.stop_word());
}

fn run(
    order: &Order,
    (load, unit_ns): (Load, f64),
    (link, reports): (Option<Link<'_>>, Socket),
    go: &Go,
    writer: Writer<'_>,
    stop: &AtomicU64,
) {
    let writer = RefCell::new(writer);
    let mut pace = Releases::new(Begin::Monotonic(go.begin_ns), 0, order.plan.period_ns, 0, stop);
    let mut put = |entry: &Entry| writer.borrow_mut().push(entry);
    let begin: Timestamp<Monotonic> = Timestamp::from_ns(go.begin_ns);
    let mut stages =
        Stages::new(order, (load, unit_ns), link, (reports, &go.sources), &writer, begin);
    periods::run((order.plan.cycles(), begin), &mut pace, &mut stages, &mut put);
}

/// What it works with.
struct Sockets {
    load: (Load, f64),
    messages: Socket,
    account: Account,
    reports: Socket,
}

fn prepare(order: &Order) -> Result<(Prepared, Sockets), String> {
    let plan = &order.plan;
    let core = plan.cores.get(usize::from(order.node) % plan.cores.len().max(1)).copied();
    if let Some(core) = core {
        affinity::pin_to_core(core).map_err(|error| format!("core {core}: {error}"))?;
    }
    let mut load = Load::default();
    let unit_ns = load.calibrate();
    let home = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let open = || mesh::open(home).map_err(|error| format!("a socket: {error}"));
    let (messages, at) = open()?;
    let (reports, reports_at) = open()?;
    let account = Account::new(&messages, usize::from(plan.nodes))
        .map_err(|error| format!("when messages come cannot be told: {error}"))?;
    let asked = Schedule { policy: plan.policy, priority: plan.priority, core };
    let prepared = Prepared {
        scheduling: schedule(asked, true, None),
        unit_ns,
        messages: (home, at).into(),
        reports: (home, reports_at).into(),
    };
    Ok((prepared, Sockets { load: (load, unit_ns), messages, account, reports }))
}
