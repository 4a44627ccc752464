//! What is at a broker: agents and campaigns. It changes nothing but to make buckets where there
//! are none.

use super::begin::INBOX;
use super::look::{Look, look};
use super::run::CampaignError;
use crate::nats::{Broker, Store};

/// What is at a broker.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The agents that are there.
    pub look: Look,
    /// The campaigns that are not over.
    pub campaigns: Vec<String>,
}

/// Asks a broker. No clock is judged: plans say how far one may be off.
///
/// # Errors
///
/// The broker cannot be used.
pub fn list(broker: &Broker, version: &str) -> Result<Listed, CampaignError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = broker.connect("horolog campaign list", INBOX).await?;
        let store = Store::open(client, &broker.shown(), broker.replicas).await?;
        let states = store.agents().await?;
        let look = look(states.iter().map(|kept| &*kept.bytes), version, None);
        let campaigns = store.campaigns().await?;
        Ok(Listed { look, campaigns })
    })
}
