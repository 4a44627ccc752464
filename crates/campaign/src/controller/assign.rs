//! Orders of a controller: assigned, changed and withdrawn, each only if it was not changed
//! concurrently.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::driver::{Controller, IssuedOrder};
use super::run::CampaignError;
use super::wait::RETRY;
use crate::assignment::Assignment;
use crate::nats::{BrokerStore, NatsError, WriteOutcome};
use crate::order::{AgentState, OrderCommand};
use crate::{AgentName, CampaignId};

/// Time for which an agent must be present without working for its order's campaign, before the
/// order counts as left by a dead controller.
const STALE_AFTER: Duration = Duration::from_secs(5);
/// Shortest time before the start time at which the start time is still sent.
const LEAD_MIN: Duration = Duration::from_millis(100);

/// Owner of the order stored at the broker for an agent.
pub(super) enum OrderOwner {
    /// This campaign.
    Ours,
    /// No readable order.
    None,
    /// Another campaign, at this revision.
    Other(CampaignId, u64),
}

impl Controller<'_> {
    /// Assigns the orders to all agents with this command. A start time that has passed is sent to
    /// no agent, unless one may have it already: then the others report that they missed it.
    pub(super) async fn assign_all(
        &mut self,
        word: Option<OrderCommand>,
    ) -> Result<(), CampaignError> {
        self.assign(self.issued_orders.keys().cloned().collect(), word).await
    }

    /// Assigns the orders to these agents.
    pub(super) async fn assign(
        &mut self,
        mut left: Vec<AgentName>,
        word: Option<OrderCommand>,
    ) -> Result<(), CampaignError> {
        left.retain(|name| !self.issued_orders[name].has_command(word));
        while !left.is_empty() {
            if let Some(OrderCommand::Start { at_ns }) = word {
                let is_near = at_ns.saturating_sub(self.utc_ns()) < LEAD_MIN.as_nanos() as i64;
                if is_near && self.issued_orders.values().all(|issued| issued.word.is_none()) {
                    return Ok(());
                }
            }
            let requests = left.iter().map(|name| self.give_one(name, word));
            let answers = futures_util::future::join_all(requests).await;
            let names = std::mem::take(&mut left);
            for (name, answer) in names.into_iter().zip(answers) {
                match answer {
                    Ok(Some(revision)) => {
                        self.gone_since = None;
                        self.note(&name, revision, word);
                    }
                    Ok(None) => {
                        if self.is_rewrite_needed(&name, word).await? {
                            left.push(name);
                        }
                    }
                    Err(error) => {
                        self.is_unreachable(error).await?;
                        left.push(name);
                    }
                }
            }
        }
        Ok(())
    }

    async fn give_one(
        &self,
        name: &AgentName,
        word: Option<OrderCommand>,
    ) -> Result<Option<u64>, NatsError> {
        let Some(IssuedOrder { order, revision, .. }) = self.issued_orders.get(name) else {
            return Ok(None);
        };
        let instruction = Assignment { order: order.clone(), word }.pack();
        match self.store.put_order(name, instruction, *revision).await? {
            WriteOutcome::Written(revision) => Ok(Some(revision)),
            WriteOutcome::Conflict => Ok(None),
        }
    }

    /// Records the revision and command stored for an agent.
    pub(super) fn note(&mut self, name: &AgentName, revision: u64, word: Option<OrderCommand>) {
        if let Some(issued) = self.issued_orders.get_mut(name) {
            (issued.revision, issued.word) = (revision, word);
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
            Some(Assignment { order, word }) if order.campaign == self.id => {
                self.note(name, revision, word);
                Ok(OrderOwner::Ours)
            }
            Some(other) => Ok(OrderOwner::Other(other.order.campaign, revision)),
            None => {
                self.note(name, revision, None);
                Ok(OrderOwner::None)
            }
        }
    }

    /// Resolves a conflicting change of the agent's order: made by this controller itself if its
    /// request succeeded but the response was lost, or by another campaign that has the agent.
    /// Returns true if the order must be written again.
    async fn is_rewrite_needed(
        &mut self,
        name: &AgentName,
        word: Option<OrderCommand>,
    ) -> Result<bool, CampaignError> {
        match self.read_order(name).await? {
            OrderOwner::Ours if self.issued_orders[name].has_command(word) => Ok(false),
            OrderOwner::Ours => self.still_owns().await.map(|()| true),
            OrderOwner::None => Ok(true),
            OrderOwner::Other(other, revision) => {
                if self.is_stale(name, &other, revision).await? {
                    self.note(name, revision, None);
                    return Ok(true);
                }
                if word.is_some() {
                    // Its results may still arrive.
                    return Ok(false);
                }
                Err(CampaignError::NotStarted(format!(
                    "agent {name} is busy with campaign {other}; wait for its end, or end it with \
                     'horolog campaign run --resume {other}' and Ctrl-C"
                )))
            }
        }
    }

    /// Returns true if an order was left by a dead controller: the agent is present and for some
    /// seconds does not work for it.
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

    /// Deletes the orders. Lost agents get an abandon command instead: if one returns, it finds
    /// that it must end.
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
