//! Node of an application under test: a process of its own that receives its order on standard
//! input. It knows its own faults, since it must inject them, and none of those of its peers: its
//! detections are its own.

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

use super::link::MeshLink;
use super::plan::TestPlan;
use super::stages::Stages;
use crate::entry::PeriodEntry;
use crate::node::mesh::{self, Mesh};
use crate::node::periods::{self, ClockReleases};
use crate::node::{
    MeshInstrument, REGION, SharedState, StartGate, StartInstant, before, next_line, read_line,
    schedule, write_line,
};
use crate::ring::RingWriter;
use crate::synthetic_load::SyntheticLoad;
use crate::task::SchedulingSpec;

/// Order to a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TestOrder {
    pub(super) plan: TestPlan,
    /// Its index among all, from 0 on.
    pub(super) node: u16,
    /// Multiplier of fixed computation.
    pub(super) load: f64,
    /// True if deep idle states are prevented.
    pub(super) hold_awake: bool,
}

/// Report of a node before it begins, or the reason for which it cannot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TestReady {
    pub(super) conditions: HostConditions,
    pub(super) scheduling: TaskScheduling,
    pub(super) unit_ns: f64,
    /// Address for messages of other nodes.
    pub(super) messages: SocketAddr,
    /// Address for reports.
    pub(super) reports: SocketAddr,
}

/// Start command to all nodes when all are ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TestStart {
    /// First release, in ns of `CLOCK_MONOTONIC`.
    pub(super) begin_ns: i64,
    /// Message address of each node.
    pub(super) peers: Vec<SocketAddr>,
    /// Address from which each source sends its reports.
    pub(super) sources: Vec<SocketAddr>,
}

/// Executes the order on standard input until all periods are over.
///
/// # Errors
///
/// If standard input has no valid order, or standard output has no reader.
pub fn serve() -> io::Result<()> {
    let mut input = io::stdin().lock();
    let order: TestOrder = read_line(&mut input)?;
    let region = SharedRegion::from_inherited(REGION)?;
    let shared = SharedState::new(region.words(), 1).ok_or(io::ErrorKind::InvalidInput)?;
    let conditions = Conditions::arrange(order.hold_awake);
    let (sender, ready) = mpsc::channel();
    let gate = StartGate::new();
    thread::scope(|scope| {
        let name = order.plan.name.clone();
        let (order, gate) = (&order, &gate);
        let working = thread::Builder::new().name(name).spawn_scoped(scope, move || {
            work(order, shared, &sender, gate);
            shared.end(0);
        })?;
        let answer: Result<PreparedTest, String> =
            ready.recv().unwrap_or_else(|_| Err("it ended before its start".to_owned()));
        let answer = answer.map(|prepared| TestReady {
            conditions: conditions.record(),
            scheduling: prepared.scheduling,
            unit_ns: prepared.unit_ns,
            messages: prepared.messages,
            reports: prepared.reports,
        });
        // The scope waits for the thread in any case.
        drop(working);
        gate.release_or_cancel(
            write_line(&answer)
                .and_then(|()| if answer.is_ok() { next_line(&mut input) } else { Ok(None) }),
        )
    })
}

/// Results of the preparation.
struct PreparedTest {
    scheduling: TaskScheduling,
    unit_ns: f64,
    messages: SocketAddr,
    reports: SocketAddr,
}

/// Prepares, reports so, waits, and runs all periods.
fn work(
    order: &TestOrder,
    shared: SharedState<'_>,
    sender: &mpsc::Sender<Result<PreparedTest, String>>,
    gate: &StartGate<TestStart>,
) {
    let Sockets { load, messages, account, reports } = match prepare(order) {
        Ok((prepared, sockets)) => {
            // The receiver exists as long as this thread does.
            let _ = sender.send(Ok(prepared));
            sockets
        }
        Err(why) => return drop(sender.send(Err(why))),
    };
    let Some(mut go) = gate.wait(shared) else { return };
    let Some(writer) = RingWriter::new(shared.ring(0)) else { return };
    let begin = Timestamp::from_ns(go.begin_ns);
    let mut link = None;
    if order.plan.nodes > 1 {
        let mut mesh = Mesh::new(messages, order.node, std::mem::take(&mut go.peers));
        shared.set_latency(0, mesh.measure_baseline(before(begin)).latency_ns);
        mesh.instrument(account);
        link = Some(MeshLink::new(mesh, &order.plan, order.node));
    }
    run(order, load, (link, reports), &go, writer, shared.stop_word());
}

fn run(
    order: &TestOrder,
    (load, unit_ns): (SyntheticLoad, f64),
    (link, reports): (Option<MeshLink<'_>>, Socket),
    go: &TestStart,
    writer: RingWriter<'_>,
    stop: &AtomicU64,
) {
    let writer = RefCell::new(writer);
    let mut pace =
        ClockReleases::new(StartInstant::Monotonic(go.begin_ns), 0, order.plan.period_ns, 0, stop);
    let mut put = |entry: &PeriodEntry| writer.borrow_mut().push(entry);
    let begin: Timestamp<Monotonic> = Timestamp::from_ns(go.begin_ns);
    let mut stages =
        Stages::new(order, (load, unit_ns), link, (reports, &go.sources), &writer, begin);
    periods::run((order.plan.cycles(), begin), &mut pace, &mut stages, &mut put);
}

/// Sockets of a node.
struct Sockets {
    load: (SyntheticLoad, f64),
    messages: Socket,
    account: MeshInstrument,
    reports: Socket,
}

fn prepare(order: &TestOrder) -> Result<(PreparedTest, Sockets), String> {
    let plan = &order.plan;
    let core = plan.cores.get(usize::from(order.node) % plan.cores.len().max(1)).copied();
    if let Some(core) = core {
        affinity::pin_to_core(core).map_err(|error| format!("core {core}: {error}"))?;
    }
    let mut load = SyntheticLoad::default();
    let unit_ns = load.calibrate();
    let home = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let open = || mesh::open((home, 0).into()).map_err(|error| format!("a socket: {error}"));
    let (messages, at) = open()?;
    let (reports, reports_at) = open()?;
    let account = MeshInstrument::new(&messages, usize::from(plan.nodes))
        .map_err(|error| format!("cannot record message arrivals: {error}"))?;
    let requested = SchedulingSpec { policy: plan.policy, priority: plan.priority, core };
    let prepared = PreparedTest {
        scheduling: schedule(requested, true, None),
        unit_ns,
        messages: (home, at).into(),
        reports: (home, reports_at).into(),
    };
    Ok((prepared, Sockets { load: (load, unit_ns), messages, account, reports }))
}
