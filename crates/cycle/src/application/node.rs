//! Node of an application test: a process that receives its order on standard input. It knows the
//! faults that it injects itself, and detects those of its peers only by observation.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::thread;

use horolog_conditions::HostConditionsGuard;
use horolog_record::{HostConditions, TaskSchedulingOutcome};
use horolog_sys::affinity;
use horolog_sys::memfd_shared_memory::MemfdSharedMemory;
use horolog_sys::socket::DatagramSocket;
use horolog_time::{Monotonic, Timestamp};
use serde::{Deserialize, Serialize};

use super::link::FaultInjectionMesh;
use super::plan::ApplicationTestPlan;
use super::stages::PipelineWork;
use crate::entry::PeriodEntry;
use crate::node::mesh::{self, Mesh};
use crate::node::periods::{self, ClockReleaseTimer};
use crate::node::{
    FirstRelease, MeshTestInstrument, NodeSharedMemory, REGION, StartGate, ping_end, read_line,
    report_ready, schedule,
};
use crate::ring::RingWriter;
use crate::synthetic_load::SyntheticLoad;
use crate::task::SchedulingSpec;

/// Order to a node of an application test.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ApplicationNodeOrder {
    pub(super) plan: ApplicationTestPlan,
    /// Index of this node, from 0.
    pub(super) node: u16,
    /// Factor of the fixed computation of stages.
    pub(super) load: f64,
    /// True if deep idle states are prevented.
    pub(super) hold_awake: bool,
}

/// Report of a node that is ready to start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ApplicationNodeReady {
    pub(super) conditions: HostConditions,
    pub(super) scheduling: TaskSchedulingOutcome,
    pub(super) unit_ns: f64,
    /// Address for messages of other nodes.
    pub(super) messages: SocketAddr,
    /// Address for reports.
    pub(super) reports: SocketAddr,
}

/// Start command, sent to all nodes when all of them are ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ApplicationStartCommand {
    /// First release, in ns of `CLOCK_MONOTONIC`.
    pub(super) begin_ns: i64,
    /// Message address of each node.
    pub(super) peers: Vec<SocketAddr>,
    /// Address from which each source sends its reports.
    pub(super) sources: Vec<SocketAddr>,
}

/// Executes the order on standard input until all periods are over or the run is stopped. A failed
/// preparation is a reply, not an error.
///
/// # Errors
///
/// Standard input has no valid order or start command, the shared memory is missing or too small,
/// the thread cannot be started, or standard output is closed.
pub fn serve() -> io::Result<()> {
    let mut input = io::stdin().lock();
    let order: ApplicationNodeOrder = read_line(&mut input)?;
    let region = MemfdSharedMemory::from_inherited(REGION)?;
    let shared = NodeSharedMemory::new(region.words(), 1).ok_or(io::ErrorKind::InvalidInput)?;
    let conditions = HostConditionsGuard::apply(order.hold_awake);
    let (sender, ready) = mpsc::channel();
    let gate = StartGate::new();
    thread::scope(|scope| {
        let name = order.plan.name.clone();
        let (order, gate) = (&order, &gate);
        let working = thread::Builder::new().name(name).spawn_scoped(scope, move || {
            prepare_and_run(order, shared, &sender, gate);
            shared.mark_task_ended(0);
        })?;
        let reply: Result<ApplicationNodePreparationResult, String> =
            ready.recv().unwrap_or_else(|_| Err("it ended before its start".to_owned()));
        let reply = reply.map(|prepared| ApplicationNodeReady {
            conditions: conditions.record(),
            scheduling: prepared.scheduling,
            unit_ns: prepared.unit_ns,
            messages: prepared.messages,
            reports: prepared.reports,
        });
        // The scope waits for the thread in any case.
        drop(working);
        gate.release_or_cancel(report_ready(&reply, &mut input))
    })
}

/// Results of a node's preparation, for its report that it is ready.
struct ApplicationNodePreparationResult {
    scheduling: TaskSchedulingOutcome,
    unit_ns: f64,
    messages: SocketAddr,
    reports: SocketAddr,
}

/// Prepares the node, reports that it is ready, waits for the start and runs all periods.
fn prepare_and_run(
    order: &ApplicationNodeOrder,
    shared: NodeSharedMemory<'_>,
    sender: &mpsc::Sender<Result<ApplicationNodePreparationResult, String>>,
    gate: &StartGate<ApplicationStartCommand>,
) {
    let ApplicationNodeResources { load, messages, instrument, reports } = match prepare(order) {
        Ok((prepared, sockets)) => {
            // The receiver exists as long as this thread does.
            let _ = sender.send(Ok(prepared));
            sockets
        }
        Err(why) => return drop(sender.send(Err(why))),
    };
    let Some(mut start) = gate.wait(shared) else { return };
    let Some(writer) = RingWriter::new(shared.ring(0)) else { return };
    let begin = Timestamp::from_ns(start.begin_ns);
    let mut link = None;
    if order.plan.nodes > 1 {
        let mut mesh = Mesh::new(messages, order.node, std::mem::take(&mut start.peers));
        shared.set_latency(0, mesh.measure_baseline(ping_end(begin)).latency_ns);
        mesh.set_instrument(instrument);
        link = Some(FaultInjectionMesh::new(mesh, &order.plan, order.node));
    }
    run_periods(order, load, (link, reports), &start, writer, shared.stop_word());
}

fn run_periods(
    order: &ApplicationNodeOrder,
    (load, unit_ns): (SyntheticLoad, f64),
    (link, reports): (Option<FaultInjectionMesh<'_>>, DatagramSocket),
    start: &ApplicationStartCommand,
    writer: RingWriter<'_>,
    stop: &AtomicU64,
) {
    let writer = RefCell::new(writer);
    let mut releases = ClockReleaseTimer::new(
        FirstRelease::Monotonic(start.begin_ns),
        0,
        order.plan.period_ns,
        0,
        stop,
    );
    let mut publish = |entry: &PeriodEntry| writer.borrow_mut().push(entry);
    let begin: Timestamp<Monotonic> = Timestamp::from_ns(start.begin_ns);
    let mut stages =
        PipelineWork::new(order, (load, unit_ns), link, (reports, &start.sources), &writer, begin);
    periods::run((order.plan.period_count(), begin), &mut releases, &mut stages, &mut publish);
}

/// Sockets, load and instrument of a prepared node.
struct ApplicationNodeResources {
    load: (SyntheticLoad, f64),
    messages: DatagramSocket,
    instrument: MeshTestInstrument,
    reports: DatagramSocket,
}

fn prepare(
    order: &ApplicationNodeOrder,
) -> Result<(ApplicationNodePreparationResult, ApplicationNodeResources), String> {
    let plan = &order.plan;
    let core = plan.cores.get(usize::from(order.node) % plan.cores.len().max(1)).copied();
    if let Some(core) = core {
        affinity::pin_to_core(core).map_err(|error| format!("core {core}: {error}"))?;
    }
    let mut load = SyntheticLoad::default();
    let unit_ns = load.calibrate();
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let open_socket = || {
        mesh::open_mesh_socket((loopback, 0).into()).map_err(|error| format!("a socket: {error}"))
    };
    let (messages, messages_port) = open_socket()?;
    let (reports, reports_port) = open_socket()?;
    let instrument = MeshTestInstrument::new(&messages, usize::from(plan.nodes))
        .map_err(|error| format!("cannot record message arrivals: {error}"))?;
    let requested = SchedulingSpec { policy: plan.policy, priority: plan.priority, core };
    let prepared = ApplicationNodePreparationResult {
        scheduling: schedule(requested, true, None),
        unit_ns,
        messages: (loopback, messages_port).into(),
        reports: (loopback, reports_port).into(),
    };
    Ok((
        prepared,
        ApplicationNodeResources { load: (load, unit_ns), messages, instrument, reports },
    ))
}
