//! Setting of the start time. A campaign has only one: if a response of the broker was lost, an
//! agent may have received a start time without confirmation. Before another one is set, every
//! order is therefore rewritten without a start time. Each change of an order names the revision
//! that it replaces, so an earlier write still in transit fails, or has already succeeded and is
//! found.

use super::assign::OrderOwner;
use super::driver::Controller;
use super::event::CampaignProgressEvent;
use super::run::CampaignError;
use crate::AgentName;
use crate::assignment::Assignment;
use crate::nats::{BrokerStore, WriteOutcome};
use crate::order::OrderCommand;

impl Controller<'_> {
    /// Sets the start time and sends it to all agents, or sends an existing one to those that do
    /// not have it.
    pub(super) async fn announce_start(&mut self) -> Result<(), CampaignError> {
        loop {
            let at_ns = match self.existing_start_time().await? {
                Some(at_ns) => at_ns,
                None => self.set_start_time().await?,
            };
            self.assign_all(Some(OrderCommand::Start { at_ns })).await?;
            let is_announced = self.issued_orders.values().any(|issued| issued.command.is_some());
            if is_announced || (self.flow)().is_break() {
                (self.event_sink)(&CampaignProgressEvent::StartTime(at_ns));
                return Ok(());
            }
        }
    }

    /// Sets the start time and saves it at the broker, so that a resuming controller knows of it.
    /// The lead begins just before a successful write, so the broker is reachable.
    async fn set_start_time(&mut self) -> Result<i64, CampaignError> {
        let lead_ns = i64::try_from(self.options.lead.as_nanos()).unwrap_or(i64::MAX);
        let at_ns = self.utc_ns().saturating_add(lead_ns);
        self.state.at_ns = Some(at_ns);
        self.save_state().await?;
        Ok(at_ns)
    }

    /// Returns the start time that an agent may have received. `None` guarantees that no agent will
    /// receive a start time set earlier.
    async fn existing_start_time(&mut self) -> Result<Option<i64>, CampaignError> {
        if self.state.at_ns.is_none() {
            return Ok(None);
        }
        let unannounced = self.issued_orders.iter().filter(|(_, issued)| issued.command.is_none());
        let unannounced: Vec<_> = unannounced.map(|(name, _)| name.clone()).collect();
        for name in unannounced {
            self.rewrite_without_start(&name).await?;
        }
        let at_ns = self.issued_start_time();
        if at_ns.is_some() {
            self.state.at_ns = at_ns;
        }
        Ok(at_ns)
    }

    /// Returns the start time in the issued orders; `None` if no order is known to have one.
    pub(super) fn issued_start_time(&self) -> Option<i64> {
        self.issued_orders.values().find_map(|issued| match issued.command {
            Some(OrderCommand::Start { at_ns }) => Some(at_ns),
            _ => None,
        })
    }

    /// Rewrites an agent's order without a command. If the order has got a start time meanwhile,
    /// records that instead.
    async fn rewrite_without_start(&mut self, name: &AgentName) -> Result<(), CampaignError> {
        while let Some(issued) = self.issued_orders.get(name) {
            let (revision, order) = (issued.revision, issued.order.clone());
            let bytes = Assignment { order, word: None }.pack();
            let put_order =
                async |store: &BrokerStore| store.put_order(name, bytes.clone(), revision).await;
            match self.with_retry(put_order).await? {
                WriteOutcome::Written(revision) => {
                    self.record_written(name, revision, None);
                    return Ok(());
                }
                WriteOutcome::Conflict => match self.read_order(name).await? {
                    // The stored command is recorded now. Without a start time, it is this
                    // controller's own write, whose response was lost.
                    OrderOwner::ThisCampaign => return self.check_ownership().await,
                    OrderOwner::OtherCampaign(..) => return Ok(()),
                    OrderOwner::NoOrder => {}
                },
            }
        }
        Ok(())
    }
}
