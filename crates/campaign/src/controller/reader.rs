//! Reads what agents tell of a campaign, from where it was: each message once, in the broker's
//! order. A call that something has come only saves time; it may be lost. What is no report is
//! counted and passed over, so that it cannot stop a campaign.

use std::time::Duration;

use async_nats::Subscriber;
use futures_util::{FutureExt, StreamExt};
use tokio::time::sleep;

use crate::message::{Assembly, MessageError, Part, Report};
use crate::nats::{NatsError, Store};
use crate::order::News;
use crate::{AgentName, CampaignId};

/// How often it looks without being called.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Messages that are read before anything is done about them, at most.
const BATCH: usize = 512;
/// Bytes of news that nobody keeps, at most.
const MURMUR_BYTES_MAX: usize = 16 << 10;

/// A place in what is told.
pub(super) struct Reader {
    assembly: Assembly,
    next: u64,
    calls: Subscriber,
    murmurs: Subscriber,
    /// Messages that are no reports.
    pub(super) unreadable: u64,
}

impl Reader {
    /// At the beginning.
    pub(super) async fn open(store: &Store, campaign: &CampaignId) -> Result<Self, NatsError> {
        let calls = store.hear(campaign).await?;
        let murmurs = store.murmurs(campaign).await?;
        Ok(Self { assembly: Assembly::default(), next: 1, calls, murmurs, unreadable: 0 })
    }

    /// The reports that have been completed since, with the agents by whose subjects they came.
    pub(super) async fn read(
        &mut self,
        store: &Store,
        campaign: &CampaignId,
    ) -> Result<Vec<(String, Report)>, NatsError> {
        let mut reports = Vec::new();
        for _ in 0..BATCH {
            let Some(message) = store.told(campaign, self.next).await? else { break };
            self.next = message.sequence + 1;
            match self.completed(&message.bytes) {
                Ok(report) => reports.extend(report.map(|report| (message.agent, report))),
                Err(_) => self.unreadable += 1,
            }
        }
        Ok(reports)
    }

    /// The report that a message completes, if it does.
    fn completed(&mut self, message: &[u8]) -> Result<Option<Report>, MessageError> {
        let packed = self.assembly.take(&Part::parse(message)?)?;
        packed.map(|packed| Report::unpack(&packed)).transpose()
    }

    /// Waits until it is called, at most a little while, and gives what was said meanwhile that
    /// nobody keeps.
    pub(super) async fn wait(&mut self) -> Vec<(AgentName, News)> {
        let mut heard = Vec::new();
        tokio::select! {
            Some(_) = self.calls.next() => {}
            Some(message) = self.murmurs.next() => heard.extend(news(&message)),
            () = sleep(LOOK_INTERVAL) => {}
        }
        // One look is enough for all that has come.
        while self.calls.next().now_or_never().flatten().is_some() {}
        while let Some(message) = self.murmurs.next().now_or_never().flatten() {
            heard.extend(news(&message));
        }
        heard
    }
}

fn news(message: &async_nats::Message) -> Option<(AgentName, News)> {
    let agent = message.subject.rsplit('.').next()?.parse().ok()?;
    let bytes = Some(&message.payload).filter(|bytes| bytes.len() <= MURMUR_BYTES_MAX)?;
    Some((agent, serde_json::from_slice(bytes).ok()?))
}
