//! Broker link of an agent: tasks that send heartbeats, read the assignment, deliver reports and
//! measure the clock. Each runs for the lifetime of the agent, whether or not the broker is
//! reachable. Decisions are made by the agent's state machine.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{sleep, timeout};

use super::clock;
use super::run::{AgentLoopEvent, AgentOptions, utc_ns};
use crate::assignment::Assignment;
use crate::nats::{BrokerOptions, BrokerStore, NatsError, StoredValue};
use crate::order::{AgentClockOffset, AgentState};
use crate::report::fragments;
use crate::spool::{Spool, SpoolEntry};
use crate::{AgentName, CampaignId};

/// Interval of heartbeats, and longest time between reads of the assignment.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// Interval of clock measurements.
const CLOCK_INTERVAL: Duration = Duration::from_secs(30);
/// Pause after a failed delivery; doubled after each further failure, up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(4);
/// Maximum number of reads, at intervals of [`LAG_READ_INTERVAL`], in which the revision announced
/// by a wake-up is expected: the servers of a cluster replicate asynchronously.
const LAG_READS_MAX: u32 = 50;
const LAG_READ_INTERVAL: Duration = Duration::from_millis(20);
const SECRET_BYTES: usize = 16;

/// State shared by the tasks of an agent.
pub(super) struct AgentContext {
    pub(super) options: AgentOptions,
    pub(super) store: BrokerStore,
    pub(super) incarnation: u64,
    /// Random secret of this start of the agent.
    secret: [u8; SECRET_BYTES],
    spool: Mutex<Spool>,
    /// Notified when a report was appended to the spool.
    pub(super) report_spooled: Notify,
    busy: Mutex<Option<CampaignId>>,
    clock: Mutex<Option<AgentClockOffset>>,
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
        clock: Option<AgentClockOffset>,
    ) -> io::Result<Self> {
        let (report_spooled, busy) = (Notify::new(), Mutex::default());
        let (spool, clock) = (Mutex::new(spool), Mutex::new(clock));
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        Ok(Self { options, store, incarnation, secret, spool, report_spooled, busy, clock })
    }

    pub(super) fn spool(&self) -> MutexGuard<'_, Spool> {
        locked(&self.spool)
    }

    pub(super) fn set_busy(&self, busy: Option<&CampaignId>) {
        *locked(&self.busy) = busy.cloned();
    }

    pub(super) fn clock(&self) -> Option<AgentClockOffset> {
        locked(&self.clock).clone()
    }

    fn state_json(&self) -> Vec<u8> {
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

/// Part of an agent's state that is the same in all versions of horolog.
#[derive(Deserialize)]
struct IncarnationHeader {
    incarnation: u64,
}

/// Sends heartbeats until an agent of the same name with a greater incarnation appears.
pub(super) async fn send_heartbeats(
    shared: Arc<AgentContext>,
    event_sender: UnboundedSender<AgentLoopEvent>,
) {
    let AgentContext { options, store, .. } = &*shared;
    let mut is_lost = false;
    loop {
        match send_heartbeat(&shared).await {
            Ok(true) => {
                if is_lost {
                    let waiting = shared.spool().len();
                    let notice =
                        format!("reconnected to the NATS server; {waiting} reports are queued");
                    let _ = event_sender.send(AgentLoopEvent::Log(notice));
                }
                is_lost = false;
            }
            Ok(false) => {
                let _ = event_sender.send(AgentLoopEvent::Replaced);
                return;
            }
            Err(error) => {
                if !is_lost {
                    let _ = event_sender.send(AgentLoopEvent::Log(format!(
                        "{error}; this agent continues without it"
                    )));
                }
                is_lost = true;
                // A broker that restarted without its data has no buckets.
                let BrokerOptions { replicas, .. } = options.broker;
                let _ = store.reopen(&options.broker.servers_text(), replicas).await;
            }
        }
        sleep(HEARTBEAT_INTERVAL).await;
    }
}

async fn send_heartbeat(shared: &AgentContext) -> Result<bool, NatsError> {
    let AgentContext { options, store, incarnation, .. } = shared;
    if let Some(StoredValue { bytes, .. }) = store.agent(&options.name).await? {
        let other = serde_json::from_slice::<IncarnationHeader>(&bytes);
        if other.is_ok_and(|other| other.incarnation > *incarnation) {
            return Ok(false);
        }
    }
    store.put_agent(&options.name, shared.state_json()).await?;
    Ok(true)
}

/// Reads the assignment at each wake-up, and periodically without one.
pub(super) async fn watch_assignment(
    shared: Arc<AgentContext>,
    event_sender: UnboundedSender<AgentLoopEvent>,
) {
    let AgentContext { options, store, .. } = &*shared;
    let mut wakeups = loop {
        match store.order_wakeups(&options.name).await {
            Ok(wakeups) => break wakeups,
            Err(_) => sleep(HEARTBEAT_INTERVAL).await,
        }
    };
    let mut tracker = AssignmentRevisionTracker::default();
    let mut revision_min = 0;
    loop {
        if let Ok(order) = read_assignment(store, &options.name, revision_min).await
            && tracker.is_new(order.as_ref().map(|order| order.revision))
        {
            // An empty value marks a deleted order.
            let order = order.filter(|order| !order.bytes.is_empty());
            let order = order.map(|order| Assignment::unpack(&order.bytes)).transpose();
            let _ = event_sender.send(AgentLoopEvent::AssignmentRead(order));
        }
        // A lost wake-up costs one heartbeat interval.
        revision_min = match timeout(HEARTBEAT_INTERVAL, wakeups.next()).await {
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

/// Reads the order. If the broker still returns a revision below `revision_min`, repeats the read
/// up to [`LAG_READS_MAX`] times.
async fn read_assignment(
    store: &BrokerStore,
    name: &AgentName,
    revision_min: u64,
) -> Result<Option<StoredValue>, NatsError> {
    for _ in 0..LAG_READS_MAX {
        let order = store.order_or_deletion(name).await?;
        if order.as_ref().map_or(0, |order| order.revision) >= revision_min {
            return Ok(order);
        }
        sleep(LAG_READ_INTERVAL).await;
    }
    store.order_or_deletion(name).await
}

/// Delivers the spooled reports, oldest first, and removes those that the broker has stored. A
/// failed delivery is retried after all later reports have been tried.
pub(super) async fn deliver_reports(
    shared: Arc<AgentContext>,
    event_sender: UnboundedSender<AgentLoopEvent>,
) {
    let (mut wait, mut last_tried) = (RETRY_MIN, 0);
    loop {
        let next = shared.spool().next_after(last_tried);
        let failed = match next {
            Ok(None) => {
                shared.report_spooled.notified().await;
                continue;
            }
            Ok(Some((position, entry))) => {
                last_tried = position;
                if send_report(&shared, &entry).await.is_err() {
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
            let _ = event_sender.send(AgentLoopEvent::Log(error.to_string()));
            sleep(RETRY_MAX).await;
        }
    }
}

async fn send_report(
    AgentContext { store, secret, .. }: &AgentContext,
    entry: &SpoolEntry,
) -> Result<(), NatsError> {
    for part in fragments(&entry.id, &entry.packed, store.message_bytes_max()) {
        store
            .publish_report(&entry.campaign, &entry.agent, &part.id(secret), part.to_bytes())
            .await?;
    }
    Ok(())
}

/// Measures the clock of this host every [`CLOCK_INTERVAL`] for the heartbeats.
pub(super) async fn monitor_clock(shared: Arc<AgentContext>) {
    loop {
        sleep(CLOCK_INTERVAL).await;
        let state = measure_clock(&shared.options).await;
        *locked(&shared.clock) = state;
    }
}

/// Returns the clock state of this host; `None` if its error bound is unknown.
pub(super) async fn measure_clock(options: &AgentOptions) -> Option<AgentClockOffset> {
    let (program, server) = (options.program.clone(), options.clock_server.clone());
    let measure = move || clock::clock_state(&program, server.as_deref());
    tokio::task::spawn_blocking(measure).await.ok().flatten()
}

/// Number of reads of older revisions, without one of the accepted revision in between, after which
/// the older revision is accepted: some seconds, since the interval of reads is at most 2 s.
const CONFLICTING_READS_MAX: u32 = 4;

/// Last accepted revision of the assignment, and the number of older ones read since it was last
/// read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct AssignmentRevisionTracker {
    revision: Option<u64>,
    conflicting_reads: u32,
}

impl AssignmentRevisionTracker {
    /// Records a read of `revision` (`None`: no value is stored). Returns true if the revision
    /// replaces the accepted one. The deletion of an order is a later revision too.
    pub(super) fn is_new(&mut self, revision: Option<u64>) -> bool {
        if revision == self.revision {
            self.conflicting_reads = 0;
            return false;
        }
        if revision < self.revision {
            self.conflicting_reads += 1;
            if self.conflicting_reads < CONFLICTING_READS_MAX {
                return false;
            }
        }
        *self = Self { revision, conflicting_reads: 0 };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify_reads(reads: &[Option<u64>]) -> Vec<bool> {
        let mut tracker = AssignmentRevisionTracker::default();
        reads.iter().map(|revision| tracker.is_new(*revision)).collect()
    }

    #[test]
    fn each_revision_is_new_once() {
        let reads = [None, Some(3), Some(3), Some(5), Some(5)];
        assert_eq!(classify_reads(&reads), [false, true, false, true, false]);
    }

    #[test]
    fn a_server_that_has_not_followed_takes_no_order_back() {
        let reads = [Some(3), None, Some(2), Some(3), None, None, Some(3)];
        assert_eq!(classify_reads(&reads), [true, false, false, false, false, false, false]);
    }

    #[test]
    fn an_emptied_broker_is_accepted_after_repeated_reads() {
        let reads = [Some(3), None, None, None, None, None, Some(1)];
        assert_eq!(classify_reads(&reads), [true, false, false, false, true, false, true]);
    }
}
