//! Encoding of agents' reports to a controller: a report is serialised as compressed JSON and split
//! into fragments, because a result with histograms can exceed the broker's message size. Fragments
//! may arrive repeatedly and in any order. Sizes are limited before anything is parsed, because the
//! senders are not trusted.

mod reassembly;

use std::io;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::order::{JobOutcome, OrderEvent, PROTOCOL};
use crate::packing::{self, hex};
use crate::{AgentName, CampaignId};

pub use self::reassembly::ReportReassembly;

/// Largest content of a fragment, in bytes. NATS accepts messages of 1 MiB by default.
pub const FRAGMENT_BYTES_MAX: usize = 512 << 10;
/// Largest number of fragments of one report.
pub const FRAGMENTS_MAX: usize = 256;
/// Largest size of a report before compression, in bytes.
pub const REPORT_BYTES_MAX: u64 = 64 << 20;
/// Largest size of the header line before a fragment's content, in bytes.
const HEADER_BYTES_MAX: usize = 512;
/// Largest size of a report's identifier, in bytes.
const ID_BYTES_MAX: usize = 256;

/// Report of an agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentReport {
    /// Version of the protocol, [`PROTOCOL`].
    pub protocol: u32,
    /// Campaign of the report.
    pub campaign: CampaignId,
    /// Reporting agent.
    pub agent: AgentName,
    /// Incarnation of that agent, a number that is greater at each of its starts.
    pub incarnation: u64,
    /// Number of the report in this incarnation, from 1 on.
    pub number: u64,
    /// Content.
    pub content: AgentReportContent,
}

/// Content of a report.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentReportContent {
    /// Event of an order.
    Event(OrderEvent),
    /// Outcome of a job.
    Outcome(Box<JobOutcome>),
}

/// Reason why a received message or report is invalid; formatted as one line.
#[derive(Debug, thiserror::Error)]
pub enum AgentReportError {
    /// The header line of a fragment is missing or invalid.
    #[error("a report part with an invalid header")]
    Header,
    /// A report has too many fragments or bytes.
    #[error("a part or report above the size limit")]
    TooLarge,
    /// A report cannot be decompressed.
    #[error("cannot decompress a report: {0}")]
    Decompression(#[from] io::Error),
    /// The JSON is not a report of this protocol.
    #[error("cannot parse a report: {0}")]
    Json(#[from] serde_json::Error),
    /// The report is of another protocol.
    #[error("a report of protocol {0}; this agent uses {PROTOCOL}")]
    Protocol(u32),
}

impl AgentReport {
    /// Returns the identifier of the report. The identifier of an outcome depends only on the job,
    /// so that an outcome reported again after a restart of the agent is recognised.
    #[must_use]
    pub fn id(&self) -> String {
        let Self { campaign, agent, incarnation, number, .. } = self;
        match &self.content {
            AgentReportContent::Event(_) => format!("{campaign}/{agent}/{incarnation}/{number}"),
            AgentReportContent::Outcome(outcome) => format!("{campaign}/{agent}/{}", outcome.job),
        }
    }

    /// Serialises the report as compressed bytes.
    ///
    /// # Errors
    ///
    /// The report exceeds [`REPORT_BYTES_MAX`] before, or [`FRAGMENTS_MAX`] fragments after
    /// compression.
    pub fn pack(&self) -> Result<Vec<u8>, AgentReportError> {
        let packed = packing::pack_within(self, REPORT_BYTES_MAX)?;
        let fits = |packed: &Vec<u8>| packed.len() <= FRAGMENTS_MAX * FRAGMENT_BYTES_MAX;
        packed.filter(fits).ok_or(AgentReportError::TooLarge)
    }

    /// Parses the bytes written by [`Self::pack`].
    ///
    /// # Errors
    ///
    /// The bytes are not a report of this protocol, or exceed the size limit.
    pub fn unpack(packed: &[u8]) -> Result<Self, AgentReportError> {
        let text = packing::unpack(packed, REPORT_BYTES_MAX)?.ok_or(AgentReportError::TooLarge)?;
        let report: Self = serde_json::from_slice(&text)?;
        if report.protocol == PROTOCOL {
            Ok(report)
        } else {
            Err(AgentReportError::Protocol(report.protocol))
        }
    }
}

/// Header line before a fragment's content.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportFragmentHeader {
    id: String,
    part: usize,
    parts: usize,
}

/// Fragment of a packed report that fits into one message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportFragment<'a> {
    header: ReportFragmentHeader,
    content: &'a [u8],
}

/// Splits a packed report into fragments with up to `bytes_max` bytes of content.
pub fn fragments<'a>(
    id: &'a str,
    packed: &'a [u8],
    bytes_max: usize,
) -> impl Iterator<Item = ReportFragment<'a>> {
    let parts = packed.chunks(bytes_max.clamp(1, FRAGMENT_BYTES_MAX));
    let count = parts.len();
    (1..).zip(parts).map(move |(part, content)| ReportFragment {
        header: ReportFragmentHeader { id: id.to_owned(), part, parts: count },
        content,
    })
}

impl<'a> ReportFragment<'a> {
    /// Returns the identifier by which a broker drops duplicates, in hexadecimal. It depends on the
    /// agent's secret, so that no other client can have the fragment dropped by publishing a
    /// message with the same identifier first. It also depends on the number of fragments.
    #[must_use]
    pub fn id(&self, secret: &[u8]) -> String {
        let ReportFragmentHeader { id, part, parts } = &self.header;
        let length = (secret.len() as u64).to_be_bytes();
        let hash = Sha256::new().chain_update(length).chain_update(secret);
        hex(&hash.chain_update(format!("{part}/{parts}/{id}")).finalize())
    }

    /// Serialises the fragment as a message.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let ReportFragmentHeader { id, part, parts } = &self.header;
        let line = serde_json::json!({ "id": id, "part": part, "parts": parts });
        let mut bytes = format!("{line}\n").into_bytes();
        bytes.extend_from_slice(self.content);
        bytes
    }

    /// Parses a message.
    ///
    /// # Errors
    ///
    /// The message is not a fragment, or exceeds the size limit.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, AgentReportError> {
        let start = &bytes[..bytes.len().min(HEADER_BYTES_MAX)];
        let end = start.iter().position(|byte| *byte == b'\n').ok_or(AgentReportError::Header)?;
        let header: ReportFragmentHeader =
            serde_json::from_slice(&bytes[..end]).map_err(|_| AgentReportError::Header)?;
        let content = &bytes[end + 1..];
        if header.parts > FRAGMENTS_MAX || content.len() > FRAGMENT_BYTES_MAX {
            return Err(AgentReportError::TooLarge);
        }
        let is_possible = (1..=header.parts).contains(&header.part);
        if !is_possible || header.id.len() > ID_BYTES_MAX {
            return Err(AgentReportError::Header);
        }
        Ok(Self { header, content })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::order::JobEnd;

    fn report(content: AgentReportContent) -> AgentReport {
        AgentReport {
            protocol: PROTOCOL,
            campaign: "c-1".parse().unwrap(),
            agent: "n1".parse().unwrap(),
            incarnation: 7,
            number: 3,
            content,
        }
    }

    fn outcome(result: serde_json::Value) -> AgentReport {
        report(AgentReportContent::Outcome(Box::new(JobOutcome {
            campaign: "c-1".parse().unwrap(),
            agent: "n1".parse().unwrap(),
            job: "load.2".parse().unwrap(),
            ending: JobEnd::Done { status: 0 },
            intended_ns: Some(1),
            started_ns: Some(2),
            ended_ns: Some(3),
            clock: None,
            result: Some(result),
            stderr_tail: "a\nb".to_owned(),
        })))
    }

    #[test]
    fn a_job_has_one_outcome_id_in_every_incarnation() {
        let mut first = outcome(json!(1));
        assert_eq!(first.id(), "c-1/n1/load.2");
        first.incarnation += 1;
        first.number += 1;
        assert_eq!(first.id(), outcome(json!(2)).id());
        assert_eq!(report(AgentReportContent::Event(OrderEvent::Ready)).id(), "c-1/n1/7/3");
    }

    #[test]
    fn what_unpacks_to_more_than_a_report_has_is_refused() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        io::copy(&mut io::repeat(b' ').take(REPORT_BYTES_MAX + 1), &mut encoder).unwrap();
        let bomb = encoder.finish().unwrap();
        assert!(bomb.len() < FRAGMENT_BYTES_MAX * 2, "it is small: {}", bomb.len());
        assert!(matches!(AgentReport::unpack(&bomb), Err(AgentReportError::TooLarge)));
        // The size is checked before the report is sent.
        let large = outcome(json!(" ".repeat(REPORT_BYTES_MAX as usize)));
        assert!(matches!(large.pack(), Err(AgentReportError::TooLarge)));
    }

    #[test]
    fn another_protocol_is_refused() {
        let other = AgentReport { protocol: PROTOCOL + 1, ..outcome(json!(null)) };
        let error = AgentReport::unpack(&other.pack().unwrap()).unwrap_err().to_string();
        assert_eq!(error, "a report of protocol 2; this agent uses 1");
    }

    #[test]
    fn impossible_parts_are_refused() {
        let wrong: [&[u8]; 7] = [
            b"",
            b"{}\n",
            b"{\"id\":\"a\",\"part\":0,\"parts\":1}\n",
            b"{\"id\":\"a\",\"part\":2,\"parts\":1}\n",
            b"{\"id\":\"a\",\"part\":1,\"parts\":0}\n",
            b"{\"id\":\"a\",\"part\":1,\"parts\":1}",
            b"{\"id\":\"a\",\"part\":1,\"parts\":1,\"x\":1}\n",
        ];
        for bytes in wrong {
            assert!(
                matches!(ReportFragment::parse(bytes), Err(AgentReportError::Header)),
                "{bytes:?}"
            );
        }
        let many = format!("{{\"id\":\"a\",\"part\":1,\"parts\":{}}}\n", FRAGMENTS_MAX + 1);
        assert!(matches!(ReportFragment::parse(many.as_bytes()), Err(AgentReportError::TooLarge)));
    }

    #[test]
    fn a_fragment_id_depends_on_part_secret_and_contents() {
        let (two, three) = (vec![0; 4], vec![0; 6]);
        let id = |packed: &[u8], part, secret: &[u8]| {
            fragments("r", packed, 2).nth(part).unwrap().id(secret)
        };
        assert_eq!(id(&two, 0, b"s"), id(&two, 0, b"s"));
        for other in [id(&two, 1, b"s"), id(&two, 0, b"t"), id(&three, 0, b"s")] {
            assert_ne!(other, id(&two, 0, b"s"));
        }
    }

    proptest! {
        #[test]
        fn parts_in_any_order_and_number_make_one_report(
            text in ".{0,400}", bytes_max in 1_usize..64, order in any::<u64>(), again in any::<u64>(),
        ) {
            let report = outcome(json!(text));
            let packed = report.pack().unwrap();
            let id = report.id();
            let mut messages: Vec<_> = fragments(&id, &packed, bytes_max.max(packed.len() / FRAGMENTS_MAX + 1))
                .map(|part| part.to_bytes())
                .collect();
            let count = messages.len();
            // One of them comes a second time, somewhere before the last.
            let twice = messages[again as usize % count].clone();
            messages.rotate_left(order as usize % count);
            messages.insert(order as usize % count, twice);
            let mut assembly = ReportReassembly::default();
            let mut whole = Vec::new();
            for message in &messages {
                whole.extend(assembly.add_fragment("n1", &ReportFragment::parse(message).unwrap()).unwrap());
            }
            prop_assert!(!whole.is_empty());
            prop_assert_eq!(AgentReport::unpack(&whole[0]).unwrap(), report);
        }

        #[test]
        fn any_bytes_are_taken_calmly(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = AgentReport::unpack(&bytes);
            if let Ok(part) = ReportFragment::parse(&bytes) {
                prop_assert_eq!(part.to_bytes().len() >= part.content.len(), true);
            }
        }
    }
}
