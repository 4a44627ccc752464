//! Driver of a campaign: assigns orders, waits for replies, sets the start time, reads reports,
//! terminates services. It holds only state that can be read again: if it is killed at any point,
//! another controller resumes from the data at the broker.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::campaign_state::CampaignState;
use super::clocks::{ClockExchange, clock_problem};
use super::event::ControllerEvent;
use super::ledger::Ledger;
use super::presence::Presence;
use super::reader::ReportReader;
use super::run::{CampaignError, CampaignSource, CollectedResults, ControllerOptions};
use super::wait::ControllerWaitOutcome;
use crate::nats::BrokerStore;
use crate::order::{Order, OrderCommand};
use crate::placement::Placement;
use crate::plan::Plan;
use crate::{AgentName, CampaignId};

/// Timeout of the agents' replies to an order.
const REPLY_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest time until their services are ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time in which services end with their results.
const FINISH_TIMEOUT: Duration = Duration::from_secs(30);

/// Order of an agent at the broker.
pub(super) struct IssuedOrder {
    pub(super) order: Order,
    pub(super) revision: u64,
    pub(super) word: Option<OrderCommand>,
}

impl IssuedOrder {
    /// Returns true if the agent has its order with this command; without a command, if it has an
    /// order.
    pub(super) fn has_command(&self, word: Option<OrderCommand>) -> bool {
        self.revision != 0 && (word.is_none() || self.word == word)
    }
}

/// Campaign in progress.
pub(super) struct Controller<'a> {
    pub(super) options: ControllerOptions,
    pub(super) event_sink: &'a dyn Fn(&ControllerEvent<'_>),
    pub(super) flow: &'a dyn Fn() -> ControlFlow<()>,
    pub(super) store: BrokerStore,
    pub(super) id: CampaignId,
    pub(super) state: CampaignState,
    pub(super) revision: u64,
    pub(super) plan: Plan,
    pub(super) placement: Placement,
    pub(super) issued_orders: BTreeMap<AgentName, IssuedOrder>,
    pub(super) ledger: Ledger,
    pub(super) reader: ReportReader,
    /// Presence of agents.
    pub(super) presence: Presence,
    pub(super) agents_read_at: Instant,
    pub(super) lost: BTreeSet<AgentName>,
    /// Time since which the broker is unreachable.
    pub(super) gone_since: Option<Instant>,
    pub(super) abandoned: bool,
    /// Time at which the orders were assigned, if this controller assigned them.
    pub(super) requested_ns: Option<i64>,
    /// Clock readings of agents in their replies.
    pub(super) answers: Vec<ClockExchange>,
    /// True if the last read of reports found none.
    pub(super) has_read_all: bool,
}

/// Returns UTC, in ns since 1970.
fn utc_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i64
}

impl ControllerOptions {
    /// Returns UTC by this controller's clock, with the injected offset, in ns since 1970.
    pub(super) fn utc_ns(&self) -> i64 {
        utc_ns().saturating_add(self.injected_offset_ns)
    }
}

impl Controller<'_> {
    pub(super) fn utc_ns(&self) -> i64 {
        self.options.utc_ns()
    }

    /// Runs the campaign from orders to outcomes.
    pub(super) async fn drive(&mut self) -> Result<CollectedResults, CampaignError> {
        (self.event_sink)(&ControllerEvent::Begun(&self.id, &self.placement));
        if !self.is_started() {
            self.prepare().await?;
            if !self.abandoned {
                self.announce_start().await?;
            }
        } else if self.issued_start_time().is_some() && !self.abandoned {
            // The previous controller may not have sent it to all.
            self.announce_start().await?;
        }
        let broker_gone = match self.collect().await {
            // Measured results are not lost with the broker.
            Err(error @ CampaignError::BrokerGone { .. }) if self.state.at_ns.is_some() => {
                self.name_the_lost();
                Some(error.to_string())
            }
            collected => {
                collected?;
                None
            }
        };
        Ok(CollectedResults {
            campaign: self.id.clone(),
            plan: self.plan.clone(),
            placement: self.placement.clone(),
            agents: self.state.agents.clone(),
            unusable: self.state.unusable.clone(),
            at_ns: self.state.at_ns,
            outcomes: self.ledger.take_outcomes(),
            lost: self.lost.clone(),
            broker_gone,
            abandoned: self.abandoned,
            twice: self.ledger.duplicates,
            strange: self.ledger.unexpected + self.reader.strange,
            unreadable: self.reader.unreadable,
        })
    }

    /// Returns true if agents have received a start time, or may have.
    fn is_started(&self) -> bool {
        let has_word = self.issued_orders.values().any(|issued| issued.word.is_some());
        self.state.at_ns.is_some() && (has_word || self.ledger.has_started())
    }

    /// Assigns the orders, and waits until all agents are ready. If one is not, none starts.
    async fn prepare(&mut self) -> Result<(), CampaignError> {
        // A resuming controller reads replies that were addressed to the previous one.
        self.requested_ns =
            matches!(self.options.what, CampaignSource::Plan(..)).then(|| self.utc_ns());
        if let Err(error) = self.assign_all(None).await {
            return match error {
                CampaignError::NotStarted(why) => self.call_off(why).await,
                other => Err(other),
            };
        }
        if self.requested_ns.is_none() {
            self.await_clock_reports().await?;
        }
        let waited = self
            .wait(REPLY_TIMEOUT, |it| {
                it.ledger.unanswered().is_empty() || !it.ledger.refusals().is_empty()
            })
            .await?;
        let ready = match waited {
            ControllerWaitOutcome::Done
                if self.ledger.refusals().is_empty() && self.wrong_clock().is_none() =>
            {
                self.wait(READY_TIMEOUT, |it| {
                    it.ledger.unready().is_empty() || !it.ledger.refusals().is_empty()
                })
                .await?
            }
            waited => waited,
        };
        if ready == ControllerWaitOutcome::Stopped {
            self.abandoned = true;
            return Ok(());
        }
        let why = self.hindrance(ready == ControllerWaitOutcome::Late);
        match why {
            Some(why) => self.call_off(why).await,
            None => Ok(()),
        }
    }

    /// Releases all agents that have accepted their orders. No job has begun, so there is nothing
    /// to collect.
    async fn call_off(&mut self, why: String) -> Result<(), CampaignError> {
        self.assign_all(Some(OrderCommand::Abandon)).await?;
        self.wait(FINISH_TIMEOUT, Self::is_all_reported).await?;
        self.release().await;
        self.remove_from_broker().await;
        Err(CampaignError::NotStarted(why))
    }

    fn hindrance(&self, is_late: bool) -> Option<String> {
        let refusals = self.ledger.refusals();
        if !refusals.is_empty() {
            let reasons: Vec<_> =
                refusals.iter().map(|(name, why)| format!("agent {name}: {why}")).collect();
            return Some(reasons.join("; "));
        }
        let pending = if self.ledger.unanswered().is_empty() {
            self.ledger.unready()
        } else {
            self.ledger.unanswered()
        };
        let names: Vec<_> = pending.iter().map(ToString::to_string).collect();
        let late = is_late
            .then(|| format!("no reply in time from {}; check that agent", names.join(", ")));
        late.or_else(|| self.wrong_clock())
    }

    /// Returns the reason why this host's clock cannot set a start time for the agents, if any.
    fn wrong_clock(&self) -> Option<String> {
        clock_problem(&self.answers, self.options.lead)
    }

    /// Reads reports until all measurements have arrived, the time is over, or the campaign is
    /// abandoned; then ends it.
    async fn collect(&mut self) -> Result<(), CampaignError> {
        if self.state.at_ns.is_some() {
            let waited = self.wait(self.time_left(), Self::is_all_measured).await?;
            self.abandoned |= waited == ControllerWaitOutcome::Stopped;
        }
        self.finish().await
    }

    /// Terminates the services, or everything, and releases the agents.
    async fn finish(&mut self) -> Result<(), CampaignError> {
        if self.abandoned {
            (self.event_sink)(&ControllerEvent::Abandoned);
        }
        // A resuming controller abandons it too. A controller that has taken over sends the last
        // commands.
        self.state.abandoned = self.abandoned;
        self.save_state().await?;
        let word = if self.abandoned { OrderCommand::Abandon } else { OrderCommand::Finish };
        // An agent that has reported everything has nothing to end, and may work for others
        // already.
        let open = self.issued_orders.keys().filter(|name| !self.ledger.has_all_outcomes(name));
        self.assign(open.cloned().collect(), Some(word)).await?;
        self.wait_for_all(FINISH_TIMEOUT + self.options.grace).await?;
        self.name_the_lost();
        self.release().await;
        Ok(())
    }

    fn name_the_lost(&mut self) {
        let missing = self.ledger.measuring().into_iter().chain(self.ledger.serving());
        self.lost = missing.cloned().collect();
        for name in &self.lost {
            (self.event_sink)(&ControllerEvent::Lost(name));
        }
    }

    /// Removes the campaign from the broker, unless another controller has taken over. What remains
    /// there expires after a week.
    pub(super) async fn remove_from_broker(&self) {
        let _ = self.store.delete_campaign(&self.id, self.revision).await;
    }
}
