//! Clock readings from the heartbeats of agents. A controller that resumes a campaign needs them,
//! because the agents' replies to the orders, which contain clock readings too, were addressed to
//! its predecessor.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::clocks::ClockExchange;
use super::driver::Controller;
use super::run::CampaignError;
use super::wait::RETRY;
use crate::AgentName;
use crate::nats::BrokerStore;
use crate::order::AgentState;

/// Timeout, longer than the heartbeat interval of agents.
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
