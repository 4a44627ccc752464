//! Orders of a controller, written and deleted at the broker. Each write names the revision that it
//! replaces, and fails if the order was changed concurrently.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::driver::{Controller, IssuedOrder};
use super::run::CampaignError;
use super::wait::RETRY;
use crate::assignment::Assignment;
use crate::nats::{BrokerStore, NatsError, WriteOutcome};
use crate::order::{AgentState, OrderCommand};
use crate::{AgentName, CampaignId};

/// Time after which another campaign's order counts as left by a dead controller, if its agent is
/// present but does not execute the order.
const STALE_AFTER: Duration = Duration::from_secs(5);
/// Minimum lead with which a start time is sent.
const LEAD_MIN: Duration = Duration::from_millis(100);

/// Campaign to which the order stored at the broker for an agent belongs.
pub(super) enum OrderOwner {
    /// This campaign.
    ThisCampaign,
    /// No readable order.
    NoOrder,
    /// Another campaign, at this revision.
    OtherCampaign(CampaignId, u64),
}

impl Controller<'_> {
    /// Writes the orders of all agents with this command. A start time that is less than
    /// [`LEAD_MIN`] ahead is written for no agent, unless an agent has a command already: then the
    /// other agents report that they missed the start time.
    pub(super) async fn assign_all(
        &mut self,
        command: Option<OrderCommand>,
    ) -> Result<(), CampaignError> {
        self.assign(self.issued_orders.keys().cloned().collect(), command).await
    }

    /// Writes the orders of these agents with this command; see [`Self::assign_all`].
    pub(super) async fn assign(
        &mut self,
        mut pending_agents: Vec<AgentName>,
        command: Option<OrderCommand>,
    ) -> Result<(), CampaignError> {
        pending_agents.retain(|name| !self.issued_orders[name].has_command(command));
        while !pending_agents.is_empty() {
            if let Some(OrderCommand::Start { at_ns }) = command {
                let is_near = at_ns.saturating_sub(self.utc_ns()) < LEAD_MIN.as_nanos() as i64;
                if is_near && self.issued_orders.values().all(|issued| issued.command.is_none()) {
                    return Ok(());
                }
            }
            let requests = pending_agents.iter().map(|name| self.write_order(name, command));
            let results = futures_util::future::join_all(requests).await;
            let names = std::mem::take(&mut pending_agents);
            for (name, result) in names.into_iter().zip(results) {
                match result {
                    Ok(Some(revision)) => {
                        self.broker_unreachable_since = None;
                        self.record_written(&name, revision, command);
                    }
                    Ok(None) => {
                        if self.is_rewrite_needed(&name, command).await? {
                            pending_agents.push(name);
                        }
                    }
                    Err(error) => {
                        self.handle_unreachable(error).await?;
                        pending_agents.push(name);
                    }
                }
            }
        }
        Ok(())
    }

    async fn write_order(
        &self,
        name: &AgentName,
        command: Option<OrderCommand>,
    ) -> Result<Option<u64>, NatsError> {
        let Some(IssuedOrder { order, revision, .. }) = self.issued_orders.get(name) else {
            return Ok(None);
        };
        let assignment = Assignment { order: order.clone(), word: command }.pack();
        match self.store.put_order(name, assignment, *revision).await? {
            WriteOutcome::Written(revision) => Ok(Some(revision)),
            WriteOutcome::Conflict => Ok(None),
        }
    }

    /// Records the revision and command stored for an agent.
    pub(super) fn record_written(
        &mut self,
        name: &AgentName,
        revision: u64,
        command: Option<OrderCommand>,
    ) {
        if let Some(issued) = self.issued_orders.get_mut(name) {
            (issued.revision, issued.command) = (revision, command);
        }
    }

    /// Reads the order stored for an agent, and records it unless it belongs to another campaign.
    pub(super) async fn read_order(
        &mut self,
        name: &AgentName,
    ) -> Result<OrderOwner, CampaignError> {
        let stored = self.with_retry(async |store: &BrokerStore| store.order(name).await).await?;
        let revision = stored.as_ref().map_or(0, |stored| stored.revision);
        match stored.and_then(|stored| Assignment::unpack(&stored.bytes).ok()) {
            Some(Assignment { order, word: command }) if order.campaign == self.id => {
                self.record_written(name, revision, command);
                Ok(OrderOwner::ThisCampaign)
            }
            Some(other) => Ok(OrderOwner::OtherCampaign(other.order.campaign, revision)),
            None => {
                self.record_written(name, revision, None);
                Ok(OrderOwner::NoOrder)
            }
        }
    }

    /// Resolves a write conflict on an agent's order: the order was changed by this controller, if
    /// its request succeeded but the response was lost, or belongs to another campaign. Returns
    /// true if the order must be written again. An order of another campaign that is in use is an
    /// error if `command` is `None`.
    async fn is_rewrite_needed(
        &mut self,
        name: &AgentName,
        command: Option<OrderCommand>,
    ) -> Result<bool, CampaignError> {
        match self.read_order(name).await? {
            OrderOwner::ThisCampaign if self.issued_orders[name].has_command(command) => Ok(false),
            OrderOwner::ThisCampaign => self.check_ownership().await.map(|()| true),
            OrderOwner::NoOrder => Ok(true),
            OrderOwner::OtherCampaign(other, revision) => {
                if self.is_stale(name, &other, revision).await? {
                    self.record_written(name, revision, None);
                    return Ok(true);
                }
                if command.is_some() {
                    // The agent's results for this campaign may still arrive.
                    return Ok(false);
                }
                Err(CampaignError::NotStarted(format!(
                    "agent {name} is busy with campaign {other}; wait for its end, or end it with \
                     'horolog campaign run --resume {other}' and Ctrl-C"
                )))
            }
        }
    }

    /// Returns true if the order of campaign `other` was left by a dead controller: for
    /// [`STALE_AFTER`] the agent is present and does not execute it, and the order stays as it is.
    async fn is_stale(
        &mut self,
        name: &AgentName,
        other: &CampaignId,
        revision: u64,
    ) -> Result<bool, CampaignError> {
        let started = Instant::now();
        while started.elapsed() < STALE_AFTER {
            sleep(RETRY).await;
            let state =
                self.with_retry(async |store: &BrokerStore| store.agent(name).await).await?;
            let state = state.and_then(|stored| AgentState::parse(&stored.bytes));
            let is_free = state.is_some_and(|state| state.busy.as_ref() != Some(other));
            let now = self.with_retry(async |store: &BrokerStore| store.order(name).await).await?;
            if !is_free || now.map_or(0, |stored| stored.revision) != revision {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Deletes the written orders, except those of lost agents: these get an abandon command, which
    /// the agent executes if it returns. Errors are ignored.
    pub(super) async fn release(&mut self) {
        for (name, issued) in self.issued_orders.iter().filter(|(_, issued)| issued.revision != 0) {
            if self.lost.contains(name) {
                let lost =
                    Assignment { order: issued.order.clone(), word: Some(OrderCommand::Abandon) };
                let _ = self.store.put_order(name, lost.pack(), issued.revision).await;
            } else {
                let _ = self.store.delete_order(name, issued.revision).await;
            }
        }
    }
}
