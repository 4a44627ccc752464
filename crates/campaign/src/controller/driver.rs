//! Driver of a campaign: assigns orders, waits for replies, sets the start time, reads reports and
//! terminates services. All its state can be read again from the broker: if the controller is
//! killed at any point, another one resumes the campaign.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::campaign_state::CampaignState;
use super::clocks::{ClockExchange, clock_problem};
use super::event::CampaignProgressEvent;
use super::ledger::Ledger;
use super::presence::AgentPresenceTracker;
use super::reader::AgentReportReader;
use super::run::{CampaignError, CollectedResults, ControllerOptions, NewOrResumedCampaign};
use super::wait::ControllerWaitOutcome;
use crate::nats::BrokerStore;
use crate::order::{Order, OrderCommand};
use crate::placement::Placement;
use crate::plan::Plan;
use crate::{AgentName, CampaignId};

/// Timeout of the agents' replies to an order.
const REPLY_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest time until the services of all agents are ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time until terminated services have ended and reported their results.
const FINISH_TIMEOUT: Duration = Duration::from_secs(30);

/// Order of an agent at the broker.
pub(super) struct IssuedOrder {
    pub(super) order: Order,
    pub(super) revision: u64,
    pub(super) command: Option<OrderCommand>,
}

impl IssuedOrder {
    /// Returns true if the order is stored at the broker with this command; for `None`, with any
    /// command or none.
    pub(super) fn has_command(&self, command: Option<OrderCommand>) -> bool {
        self.revision != 0 && (command.is_none() || self.command == command)
    }
}

/// Controller of a campaign in progress.
pub(super) struct Controller<'a> {
    pub(super) options: ControllerOptions,
    pub(super) event_sink: &'a dyn Fn(&CampaignProgressEvent<'_>),
    pub(super) flow: &'a dyn Fn() -> ControlFlow<()>,
    pub(super) store: BrokerStore,
    pub(super) id: CampaignId,
    pub(super) state: CampaignState,
    pub(super) state_revision: u64,
    pub(super) plan: Plan,
    pub(super) placement: Placement,
    pub(super) issued_orders: BTreeMap<AgentName, IssuedOrder>,
    pub(super) ledger: Ledger,
    pub(super) reader: AgentReportReader,
    /// Presence of the agents whose reports are incomplete.
    pub(super) presence: AgentPresenceTracker,
    pub(super) agents_read_at: Instant,
    pub(super) lost: BTreeSet<AgentName>,
    /// Time at which the broker became unreachable; `None` if it is reachable.
    pub(super) broker_unreachable_since: Option<Instant>,
    pub(super) abandoned: bool,
    /// Time at which this controller assigned the orders: UTC, in ns since 1970; `None` if it
    /// resumed the campaign.
    pub(super) requested_ns: Option<i64>,
    /// Clock readings of agents in their replies or heartbeats.
    pub(super) clock_exchanges: Vec<ClockExchange>,
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

    /// Runs the campaign from orders to outcomes, and returns the results.
    pub(super) async fn drive(&mut self) -> Result<CollectedResults, CampaignError> {
        (self.event_sink)(&CampaignProgressEvent::Begun(&self.id, &self.placement));
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
            // The results received so far are returned.
            Err(error @ CampaignError::BrokerGone { .. }) if self.state.at_ns.is_some() => {
                self.report_lost_agents();
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
            duplicate_outcomes: self.ledger.duplicates,
            unexpected_reports: self.ledger.unexpected + self.reader.unknown_agent_messages,
            unreadable: self.reader.unreadable,
        })
    }

    /// Returns true if agents have received a start time, or may have.
    fn is_started(&self) -> bool {
        let has_command = self.issued_orders.values().any(|issued| issued.command.is_some());
        self.state.at_ns.is_some() && (has_command || self.ledger.has_started())
    }

    /// Assigns the orders, and waits until all agents are ready. If one is not, none starts.
    async fn prepare(&mut self) -> Result<(), CampaignError> {
        // The replies that a resuming controller reads are older than its own request would be.
        self.requested_ns =
            matches!(self.options.source, NewOrResumedCampaign::Plan(..)).then(|| self.utc_ns());
        if let Err(error) = self.assign_all(None).await {
            return match error {
                CampaignError::NotStarted(why) => self.abandon_before_start(why).await,
                other => Err(other),
            };
        }
        if self.requested_ns.is_none() {
            self.await_clock_reports().await?;
        }
        let waited = self
            .wait(REPLY_TIMEOUT, |controller| {
                controller.ledger.unanswered().is_empty()
                    || !controller.ledger.refusals().is_empty()
            })
            .await?;
        let ready = match waited {
            ControllerWaitOutcome::Done
                if self.ledger.refusals().is_empty() && self.start_clock_problem().is_none() =>
            {
                self.wait(READY_TIMEOUT, |controller| {
                    controller.ledger.unready().is_empty()
                        || !controller.ledger.refusals().is_empty()
                })
                .await?
            }
            waited => waited,
        };
        if ready == ControllerWaitOutcome::Stopped {
            self.abandoned = true;
            return Ok(());
        }
        let why = self.not_started_reason(ready == ControllerWaitOutcome::TimedOut);
        match why {
            Some(why) => self.abandon_before_start(why).await,
            None => Ok(()),
        }
    }

    /// Abandons the orders before the start, removes the campaign from the broker, and returns
    /// [`CampaignError::NotStarted`]. No job has begun, so there are no results.
    async fn abandon_before_start(&mut self, why: String) -> Result<(), CampaignError> {
        self.assign_all(Some(OrderCommand::Abandon)).await?;
        self.wait(FINISH_TIMEOUT, Self::is_all_reported).await?;
        self.release().await;
        self.remove_from_broker().await;
        Err(CampaignError::NotStarted(why))
    }

    fn not_started_reason(&self, is_late: bool) -> Option<String> {
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
        late.or_else(|| self.start_clock_problem())
    }

    /// Returns the reason why this host's clock cannot set a start time for the agents, if any.
    fn start_clock_problem(&self) -> Option<String> {
        clock_problem(&self.clock_exchanges, self.options.lead)
    }

    /// Reads reports until all measurements have outcomes, their time is over, or the campaign is
    /// abandoned; then finishes it.
    async fn collect(&mut self) -> Result<(), CampaignError> {
        if self.state.at_ns.is_some() {
            let waited = self.wait(self.time_left(), Self::is_all_measured).await?;
            self.abandoned |= waited == ControllerWaitOutcome::Stopped;
        }
        self.finish().await
    }

    /// Terminates the services, or all jobs of an abandoned campaign, waits for the remaining
    /// reports, and releases the agents.
    async fn finish(&mut self) -> Result<(), CampaignError> {
        if self.abandoned {
            (self.event_sink)(&CampaignProgressEvent::Abandoned);
        }
        // A controller that resumes this campaign reads here that it was abandoned. If another
        // controller has taken over, this fails, and that one sends the last commands.
        self.state.abandoned = self.abandoned;
        self.save_state().await?;
        let command = if self.abandoned { OrderCommand::Abandon } else { OrderCommand::Finish };
        // An agent with all outcomes has no job left, and may already execute another order.
        let open = self.issued_orders.keys().filter(|name| !self.ledger.has_all_outcomes(name));
        self.assign(open.cloned().collect(), Some(command)).await?;
        self.wait_for_all(FINISH_TIMEOUT + self.options.grace).await?;
        self.report_lost_agents();
        self.release().await;
        Ok(())
    }

    fn report_lost_agents(&mut self) {
        let missing = self.ledger.measuring().into_iter().chain(self.ledger.serving());
        self.lost = missing.cloned().collect();
        for name in &self.lost {
            (self.event_sink)(&CampaignProgressEvent::Lost(name));
        }
    }

    /// Removes the campaign from the broker, unless another controller has taken over. Remaining
    /// data expires at the broker after a week.
    pub(super) async fn remove_from_broker(&self) {
        let _ = self.store.delete_campaign(&self.id, self.state_revision).await;
    }
}
