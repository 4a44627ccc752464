//! Waiting of a controller: reads reports, detects missing agents, and retries while the broker is
//! unreachable. Times when the broker is unreachable do not count towards other timeouts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::clocks::ClockExchange;
use super::driver::Controller;
use super::event::CampaignProgressEvent;
use super::ledger::LedgerChange;
use super::run::CampaignError;
use crate::AgentName;
use crate::nats::{BrokerStore, NatsError};
use crate::order::{AgentState, OrderEvent};

/// Interval of presence checks.
const PRESENCE_INTERVAL: Duration = Duration::from_secs(2);
pub(super) const RETRY: Duration = Duration::from_millis(250);

/// Outcome of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ControllerWaitOutcome {
    Done,
    TimedOut,
    Stopped,
}

impl Controller<'_> {
    /// Reads reports until `is_done` returns true or a stop is requested, at most for `timeout`;
    /// times when the broker is unreachable do not count.
    pub(super) async fn wait(
        &mut self,
        timeout: Duration,
        is_done: impl Fn(&Self) -> bool,
    ) -> Result<ControllerWaitOutcome, CampaignError> {
        let mut left = timeout;
        loop {
            let took = self.read_reports().await?;
            if is_done(self) {
                return Ok(ControllerWaitOutcome::Done);
            }
            if (self.flow)().is_break() {
                return Ok(ControllerWaitOutcome::Stopped);
            }
            let Some(rest) = left.checked_sub(took) else {
                return Ok(ControllerWaitOutcome::TimedOut);
            };
            left = rest;
        }
    }

    /// Reads reports until all have arrived, at most for `timeout`; a requested stop does not end
    /// this wait. Missing agents that do not count as lost yet are awaited beyond the timeout,
    /// unless a stop is requested.
    pub(super) async fn wait_for_all(&mut self, timeout: Duration) -> Result<(), CampaignError> {
        let mut left = timeout;
        while !self.is_all_reported() {
            let rest = left.checked_sub(self.read_reports().await?);
            if rest.is_none() && (!self.is_agent_missing() || (self.flow)().is_break()) {
                break;
            }
            left = rest.unwrap_or_default();
        }
        Ok(())
    }

    /// Reads the available reports; if there are none, waits briefly for progress events. Returns
    /// the time spent, or zero if the broker was unreachable.
    async fn read_reports(&mut self) -> Result<Duration, CampaignError> {
        let began = Instant::now();
        let read = self.reader.read(&self.store, &self.id).await;
        let reports = match read {
            Ok(reports) => reports,
            Err(error) => {
                self.handle_unreachable(error).await?;
                return Ok(Duration::ZERO);
            }
        };
        self.broker_unreachable_since = None;
        self.has_read_all = reports.is_empty();
        for (agent, report) in reports {
            let ingested = self.ledger.ingest(&agent, report);
            self.record_clock(&ingested);
            self.publish_ingested(&ingested);
        }
        self.update_presence(began).await;
        if !self.has_read_all {
            return Ok(began.elapsed());
        }
        for (agent, event) in self.reader.wait().await {
            if let OrderEvent::Progress { job, text } = &event {
                (self.event_sink)(&CampaignProgressEvent::Progress(&agent, job, text));
            }
        }
        Ok(began.elapsed())
    }

    /// Records the clock reading of an agent that accepted its order.
    fn record_clock(&mut self, ingested: &LedgerChange) {
        let LedgerChange::Event(agent, OrderEvent::Accepted { at_ns }) = ingested else { return };
        let Some(requested_ns) = self.requested_ns else { return };
        let (agent, received_ns) = (agent.clone(), self.utc_ns());
        self.clock_exchanges.push(ClockExchange {
            agent,
            requested_ns,
            reported_ns: *at_ns,
            received_ns,
        });
    }

    fn publish_ingested(&self, ingested: &LedgerChange) {
        match ingested {
            LedgerChange::Event(agent, event) => {
                (self.event_sink)(&CampaignProgressEvent::AgentEvent(agent, event));
            }
            LedgerChange::Outcome(job) => {
                if let Some(outcome) = self.ledger.outcomes().get(job) {
                    let left = self.placement.jobs.len() - self.ledger.outcomes().len();
                    (self.event_sink)(&CampaignProgressEvent::Outcome(outcome, left));
                }
            }
            LedgerChange::Ignored => {}
        }
    }

    /// Reads the heartbeats of the agents whose reports are incomplete, at most once per
    /// [`PRESENCE_INTERVAL`].
    async fn update_presence(&mut self, now: Instant) {
        if now - self.agents_read_at < PRESENCE_INTERVAL {
            return;
        }
        // Times when the broker was unreachable do not count as an agent's absence.
        let elapsed = (now - self.agents_read_at).min(PRESENCE_INTERVAL * 2);
        self.agents_read_at = now;
        // An unreachable broker is detected when reports are read.
        let _ = self.reader.resync(&self.store).await;
        let open = self.ledger.measuring().into_iter().chain(self.ledger.serving());
        let open: BTreeSet<_> = open.cloned().collect();
        for name in open {
            if let Ok(found) = self.store.agent(&name).await {
                self.presence.record_read(&name, found.map(|stored| stored.revision), elapsed);
            }
        }
    }

    /// Repeats a request until the broker responds; fails if it is unreachable for longer than the
    /// broker timeout.
    pub(super) async fn with_retry<T>(
        &mut self,
        request: impl AsyncFn(&BrokerStore) -> Result<T, NatsError>,
    ) -> Result<T, CampaignError> {
        loop {
            match request(&self.store).await {
                Ok(answer) => {
                    self.broker_unreachable_since = None;
                    return Ok(answer);
                }
                Err(error) => self.handle_unreachable(error).await?,
            }
        }
    }

    /// Handles a failed request: reports the first of a series, fails after the broker timeout, and
    /// otherwise pauses before the next attempt.
    pub(super) async fn handle_unreachable(
        &mut self,
        error: NatsError,
    ) -> Result<(), CampaignError> {
        let since = *self.broker_unreachable_since.get_or_insert_with(|| {
            (self.event_sink)(&CampaignProgressEvent::BrokerGone(&error));
            Instant::now()
        });
        if since.elapsed() > self.options.broker_timeout {
            let campaign = self.id.clone();
            return Err(CampaignError::BrokerGone { campaign, error });
        }
        sleep(RETRY).await;
        Ok(())
    }

    /// Returns the time until the deadline of all measurements plus the grace period; at least the
    /// grace period.
    pub(super) fn time_left(&self) -> Duration {
        let deadline_ns = self.issued_orders.values().map(|issued| issued.order.deadline_ns).max();
        let deadline = Duration::from_nanos(deadline_ns.unwrap_or(0));
        let until_ns = self.state.at_ns.unwrap_or_default() - self.utc_ns();
        let until = Duration::from_nanos(until_ns.max(0) as u64);
        let since = Duration::from_nanos((-until_ns).max(0) as u64);
        (until + deadline + self.options.grace).saturating_sub(since).max(self.options.grace)
    }

    /// Returns true if all measurements have outcomes, except those of lost agents.
    pub(super) fn is_all_measured(&self) -> bool {
        self.ledger.measuring().into_iter().all(|name| self.is_lost(name))
    }

    pub(super) fn is_all_reported(&self) -> bool {
        self.is_all_measured() && self.ledger.serving().into_iter().all(|name| self.is_lost(name))
    }

    fn is_lost(&self, name: &AgentName) -> bool {
        self.presence.missing_for(name).is_some_and(|gone| gone >= self.options.agent_timeout)
    }

    /// Returns true if an agent is missing but may still return.
    fn is_agent_missing(&self) -> bool {
        let mut open = self.ledger.measuring().into_iter().chain(self.ledger.serving());
        open.any(|name| self.presence.missing_for(name).is_some() && !self.is_lost(name))
    }
}

/// Longest wait for new heartbeats of the agents; longer than the interval of heartbeats.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(6);

impl Controller<'_> {
    /// Records a clock exchange from a new heartbeat of each agent. An agent without a heartbeat in
    /// [`HEARTBEAT_TIMEOUT`] is skipped.
    pub(super) async fn await_clock_reports(&mut self) -> Result<(), CampaignError> {
        let started = Instant::now();
        let mut pending_agents: Vec<AgentName> = self.issued_orders.keys().cloned().collect();
        // Revision of each agent's last heartbeat, and the last time at which it was current.
        let mut previous_reads: BTreeMap<AgentName, (u64, i64)> = BTreeMap::new();
        while !pending_agents.is_empty()
            && started.elapsed() < HEARTBEAT_TIMEOUT
            && (self.flow)().is_continue()
        {
            for name in std::mem::take(&mut pending_agents) {
                let read_ns = self.utc_ns();
                let stored =
                    self.with_retry(async |store: &BrokerStore| store.agent(&name).await).await?;
                let revision = stored.as_ref().map_or(0, |stored| stored.revision);
                let requested_ns = previous_reads.get(&name).filter(|(old, _)| *old < revision);
                let requested_ns = requested_ns.map(|(_, requested_ns)| *requested_ns);
                let state = stored.and_then(|stored| AgentState::parse(&stored.bytes));
                if let Some((requested_ns, reported_ns)) =
                    requested_ns.zip(state.and_then(|state| state.at_ns))
                {
                    let received_ns = self.utc_ns();
                    self.clock_exchanges.push(ClockExchange {
                        agent: name,
                        requested_ns,
                        reported_ns,
                        received_ns,
                    });
                    continue;
                }
                previous_reads.insert(name.clone(), (revision, read_ns));
                pending_agents.push(name);
            }
            sleep(RETRY).await;
        }
        Ok(())
    }
}
