//! Broker link of an agent: sends heartbeats, reads the assignment, and delivers reports. Each task
//! runs by itself for the lifetime of the agent, whether or not the broker is reachable, and
//! decides nothing.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{sleep, timeout};

use super::clock;
use super::revision::RevisionTracker;
use super::run::{AgentEvent, AgentOptions, utc_ns};
use crate::assignment::Assignment;
use crate::nats::{BrokerOptions, BrokerStore, NatsError, StoredValue};
use crate::order::{AgentClockState, AgentState};
use crate::report::fragment;
use crate::spool::{Spool, SpoolEntry};
use crate::{AgentName, CampaignId};

/// Interval of heartbeats, and longest time between reads of the assignment.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// Interval of clock measurements.
const CLOCK_INTERVAL: Duration = Duration::from_secs(30);
/// Shortest pause between delivery attempts, doubled up to the longest.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(4);
/// Number of reads while a bucket may lag behind the wake-up that announced a revision: the servers
/// of a cluster replicate asynchronously.
const LAG_STEPS: u32 = 50;
const LAG_STEP: Duration = Duration::from_millis(20);
const SECRET_BYTES: usize = 16;

/// State shared by the tasks of an agent.
pub(super) struct AgentContext {
    pub(super) options: AgentOptions,
    pub(super) store: BrokerStore,
    pub(super) incarnation: u64,
    /// Random secret of this start of the agent.
    secret: [u8; SECRET_BYTES],
    spool: Mutex<Spool>,
    /// Notified when a report was put into the spool.
    pub(super) put: Notify,
    busy: Mutex<Option<CampaignId>>,
    clock: Mutex<Option<AgentClockState>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AgentContext {
    pub(super) fn new(
        options: AgentOptions,
        store: BrokerStore,
        incarnation: u64,
        spool: Spool,
        clock: Option<AgentClockState>,
    ) -> io::Result<Self> {
        let (put, busy) = (Notify::new(), Mutex::default());
        let (spool, clock) = (Mutex::new(spool), Mutex::new(clock));
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        Ok(Self { options, store, incarnation, secret, spool, put, busy, clock })
    }

    pub(super) fn spool(&self) -> MutexGuard<'_, Spool> {
        locked(&self.spool)
    }

    pub(super) fn set_busy(&self, busy: Option<&CampaignId>) {
        *locked(&self.busy) = busy.cloned();
    }

    pub(super) fn clock(&self) -> Option<AgentClockState> {
        locked(&self.clock).clone()
    }

    fn state(&self) -> Vec<u8> {
        let AgentOptions { name, version, labels, addresses, capabilities: abilities, .. } =
            &self.options;
        let state = AgentState {
            protocol: crate::order::PROTOCOL,
            version: version.clone(),
            name: name.clone(),
            incarnation: self.incarnation,
            labels: labels.clone(),
            addresses: addresses.clone(),
            abilities: abilities.clone(),
            clock: self.clock(),
            busy: locked(&self.busy).clone(),
            at_ns: Some(utc_ns()),
        };
        // Names and numbers only, which always serialise.
        serde_json::to_vec(&state).unwrap_or_default()
    }
}

/// Header readable in every version.
#[derive(Deserialize)]
struct Incarnation {
    incarnation: u64,
}

/// Sends heartbeats until a later agent has this name.
pub(super) async fn send_heartbeats(shared: Arc<AgentContext>, to: UnboundedSender<AgentEvent>) {
    let AgentContext { options, store, .. } = &*shared;
    let mut is_lost = false;
    loop {
        match send_heartbeat(&shared).await {
            Ok(true) => {
                if is_lost {
                    let waiting = shared.spool().len();
                    let notice =
                        format!("reconnected to the NATS server; {waiting} reports are queued");
                    let _ = to.send(AgentEvent::Log(notice));
                }
                is_lost = false;
            }
            Ok(false) => {
                let _ = to.send(AgentEvent::Replaced);
                return;
            }
            Err(error) => {
                if !is_lost {
                    let _ = to
                        .send(AgentEvent::Log(format!("{error}; this agent continues without it")));
                }
                is_lost = true;
                // A broker that restarted without its data has no buckets.
                let BrokerOptions { replicas, .. } = options.broker;
                let _ = store.reopen(&options.broker.shown(), replicas).await;
            }
        }
        sleep(HEARTBEAT_INTERVAL).await;
    }
}

async fn send_heartbeat(shared: &AgentContext) -> Result<bool, NatsError> {
    let AgentContext { options, store, incarnation, .. } = shared;
    if let Some(StoredValue { bytes, .. }) = store.agent(&options.name).await? {
        let other = serde_json::from_slice::<Incarnation>(&bytes);
        if other.is_ok_and(|other| other.incarnation > *incarnation) {
            return Ok(false);
        }
    }
    store.put_agent(&options.name, shared.state()).await?;
    Ok(true)
}

/// Reads the assignment at each wake-up, and periodically without one.
pub(super) async fn watch_assignment(shared: Arc<AgentContext>, to: UnboundedSender<AgentEvent>) {
    let AgentContext { options, store, .. } = &*shared;
    let mut wakeups = loop {
        match store.order_wakeups(&options.name).await {
            Ok(wakeups) => break wakeups,
            Err(_) => sleep(HEARTBEAT_INTERVAL).await,
        }
    };
    let mut tracker = RevisionTracker::default();
    let mut least = 0;
    loop {
        if let Ok(order) = read_assignment(store, &options.name, least).await
            && tracker.is_new(order.as_ref().map(|order| order.revision))
        {
            // An empty one means that the order was deleted.
            let order = order.filter(|order| !order.bytes.is_empty());
            let order = order.map(|order| Assignment::unpack(&order.bytes)).transpose();
            let _ = to.send(AgentEvent::AssignmentRead(order));
        }
        // A lost wake-up costs one heartbeat interval.
        least = match timeout(HEARTBEAT_INTERVAL, wakeups.next()).await {
            Ok(Some(wakeup)) => {
                { std::str::from_utf8(&wakeup.payload).ok().and_then(|text| text.parse().ok()) }
                    .unwrap_or(0)
            }
            Ok(None) => {
                sleep(HEARTBEAT_INTERVAL).await;
                0
            }
            Err(_) => 0,
        };
    }
}

/// Reads the order of this revision, or of a later one if it arrives soon.
async fn read_assignment(
    store: &BrokerStore,
    name: &AgentName,
    least: u64,
) -> Result<Option<StoredValue>, NatsError> {
    for _ in 0..LAG_STEPS {
        let order = store.order_or_end(name).await?;
        if order.as_ref().map_or(0, |order| order.revision) >= least {
            return Ok(order);
        }
        sleep(LAG_STEP).await;
    }
    store.order_or_end(name).await
}

/// Delivers the spooled reports, oldest first, and removes those that the broker has stored. A
/// failed delivery is retried after all later reports have been tried.
pub(super) async fn deliver_reports(shared: Arc<AgentContext>, to: UnboundedSender<AgentEvent>) {
    let (mut wait, mut tried) = (RETRY_MIN, 0);
    loop {
        let next = shared.spool().next_after(tried);
        let failed = match next {
            Ok(None) => {
                shared.put.notified().await;
                continue;
            }
            Ok(Some((position, entry))) => {
                tried = position;
                if send(&shared, &entry).await.is_err() {
                    // The heartbeat reports that the broker is unreachable.
                    sleep(wait).await;
                    wait = (wait * 2).min(RETRY_MAX);
                    continue;
                }
                wait = RETRY_MIN;
                shared.spool().remove(position)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = failed {
            let _ = to.send(AgentEvent::Log(error.to_string()));
            sleep(RETRY_MAX).await;
        }
    }
}

async fn send(
    AgentContext { store, secret, .. }: &AgentContext,
    entry: &SpoolEntry,
) -> Result<(), NatsError> {
    for part in fragment(&entry.id, &entry.packed, store.message_bytes_max()) {
        store
            .publish_report(&entry.campaign, &entry.agent, &part.id(secret), part.to_bytes())
            .await?;
    }
    Ok(())
}

/// Measures the clock periodically.
pub(super) async fn monitor_clock(shared: Arc<AgentContext>) {
    loop {
        sleep(CLOCK_INTERVAL).await;
        let state = measure_clock(&shared.options).await;
        *locked(&shared.clock) = state;
    }
}

/// Measures the clock.
pub(super) async fn measure_clock(options: &AgentOptions) -> Option<AgentClockState> {
    let (program, server) = (options.program.clone(), options.clock_server.clone());
    let measure = move || clock::clock_state(&program, server.as_deref());
    tokio::task::spawn_blocking(measure).await.ok().flatten()
}
