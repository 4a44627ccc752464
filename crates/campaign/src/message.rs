//! What an agent tells a controller, as bytes: a report is packed (JSON, compressed), and cut into
//! parts that a broker takes, since a result with histograms may be larger than one message. All
//! that could come from a stranger is bounded in size and number before it is taken apart. Nothing
//! here sends, and nothing trusts that parts come once or in order.

mod assembly;

use std::io;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::order::{News, Outcome, PROTOCOL};
use crate::packing::{self, hex};
use crate::{AgentName, CampaignId};

pub use self::assembly::Assembly;

/// Bytes of a part's content, at most. NATS takes 1 MiB in a message unless told otherwise.
pub const PART_BYTES_MAX: usize = 512 << 10;
/// Parts of one report, at most.
pub const PARTS_MAX: usize = 256;
/// Bytes of a report before it is packed, at most.
pub const REPORT_BYTES_MAX: u64 = 64 << 20;
/// Bytes of the line before a part's content, at most.
const HEADER_BYTES_MAX: usize = 512;
/// Bytes of a report's identifier, at most.
const ID_BYTES_MAX: usize = 256;

/// One thing that an agent tells.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The campaign that it is about.
    pub campaign: CampaignId,
    /// Who tells.
    pub agent: AgentName,
    /// Which start of that agent's program.
    pub incarnation: u64,
    /// Counts what this incarnation tells, from 1 on.
    pub number: u64,
    /// What is told.
    pub content: Content,
}

/// What a report tells.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// How an order is coming along.
    News(News),
    /// What became of a job.
    Outcome(Box<Outcome>),
}

/// Why bytes are no report; one line.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The line before a part's content is missing or says something that cannot be.
    #[error("a part without a header that can be understood")]
    Header,
    /// More parts or bytes than any report has.
    #[error("a part or report that is larger than any can be")]
    TooLarge,
    /// It does not unpack.
    #[error("a report that cannot be unpacked: {0}")]
    Packing(#[from] io::Error),
    /// It is no report of this protocol.
    #[error("a report that cannot be read: {0}")]
    Form(#[from] serde_json::Error),
    /// It is of another protocol.
    #[error("a report of protocol {0}; this is {PROTOCOL}")]
    Protocol(u32),
}

impl Report {
    /// What it is known by. A job has one outcome, so its identifier does not change when the agent
    /// tells it once more after a restart.
    #[must_use]
    pub fn id(&self) -> String {
        let Self { campaign, agent, incarnation, number, .. } = self;
        match &self.content {
            Content::News(_) => format!("{campaign}/{agent}/{incarnation}/{number}"),
            Content::Outcome(outcome) => format!("{campaign}/{agent}/{}", outcome.job),
        }
    }

    /// As bytes, compressed.
    ///
    /// # Errors
    ///
    /// It is larger than [`REPORT_BYTES_MAX`] before or [`PARTS_MAX`] parts after.
    pub fn pack(&self) -> Result<Vec<u8>, MessageError> {
        let packed = packing::pack_within(self, REPORT_BYTES_MAX)?;
        let fits = |packed: &Vec<u8>| packed.len() <= PARTS_MAX * PART_BYTES_MAX;
        packed.filter(fits).ok_or(MessageError::TooLarge)
    }

    /// From such bytes.
    ///
    /// # Errors
    ///
    /// They are no report of this protocol, or too large a one.
    pub fn unpack(packed: &[u8]) -> Result<Self, MessageError> {
        let text = packing::unpack(packed, REPORT_BYTES_MAX)?.ok_or(MessageError::TooLarge)?;
        let report: Self = serde_json::from_slice(&text)?;
        if report.protocol == PROTOCOL {
            Ok(report)
        } else {
            Err(MessageError::Protocol(report.protocol))
        }
    }
}

/// The line before a part's content.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    id: String,
    part: usize,
    parts: usize,
}

/// One message's worth of a packed report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part<'a> {
    header: Header,
    content: &'a [u8],
}

/// Cuts a packed report into parts of at most so many bytes of content.
pub fn cut<'a>(id: &'a str, packed: &'a [u8], bytes_max: usize) -> impl Iterator<Item = Part<'a>> {
    let parts = packed.chunks(bytes_max.clamp(1, PART_BYTES_MAX));
    let count = parts.len();
    (1..).zip(parts).map(move |(part, content)| Part {
        header: Header { id: id.to_owned(), part, parts: count },
        content,
    })
}

impl<'a> Part<'a> {
    /// What it is known by, for a broker that drops what comes twice. Nobody who does not know the
    /// secret can say it first and so have this one dropped. A report that is cut otherwise when it
    /// is told again has other parts.
    #[must_use]
    pub fn id(&self, secret: &[u8]) -> String {
        let Header { id, part, parts } = &self.header;
        let length = (secret.len() as u64).to_be_bytes();
        let hash = Sha256::new().chain_update(length).chain_update(secret);
        hex(&hash.chain_update(format!("{part}/{parts}/{id}")).finalize())
    }

    /// As a message.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Header { id, part, parts } = &self.header;
        let line = serde_json::json!({ "id": id, "part": part, "parts": parts });
        let mut bytes = format!("{line}\n").into_bytes();
        bytes.extend_from_slice(self.content);
        bytes
    }

    /// From a message.
    ///
    /// # Errors
    ///
    /// It is no part, or a larger one than there can be.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MessageError> {
        let start = &bytes[..bytes.len().min(HEADER_BYTES_MAX)];
        let end = start.iter().position(|byte| *byte == b'\n').ok_or(MessageError::Header)?;
        let header: Header =
            serde_json::from_slice(&bytes[..end]).map_err(|_| MessageError::Header)?;
        let content = &bytes[end + 1..];
        if header.parts > PARTS_MAX || content.len() > PART_BYTES_MAX {
            return Err(MessageError::TooLarge);
        }
        let is_possible = (1..=header.parts).contains(&header.part);
        if !is_possible || header.id.len() > ID_BYTES_MAX {
            return Err(MessageError::Header);
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
    use crate::order::Ending;

    fn report(content: Content) -> Report {
        Report {
            protocol: PROTOCOL,
            campaign: "c-1".parse().unwrap(),
            agent: "n1".parse().unwrap(),
            incarnation: 7,
            number: 3,
            content,
        }
    }

    fn outcome(result: serde_json::Value) -> Report {
        report(Content::Outcome(Box::new(Outcome {
            campaign: "c-1".parse().unwrap(),
            agent: "n1".parse().unwrap(),
            job: "load.2".parse().unwrap(),
            ending: Ending::Done { status: 0 },
            intended_ns: Some(1),
            started_ns: Some(2),
            ended_ns: Some(3),
            clock: None,
            result: Some(result),
            stderr_tail: "a\nb".to_owned(),
        })))
    }

    #[test]
    fn a_job_has_one_outcome_whoever_tells_it() {
        let mut first = outcome(json!(1));
        assert_eq!(first.id(), "c-1/n1/load.2");
        first.incarnation += 1;
        first.number += 1;
        assert_eq!(first.id(), outcome(json!(2)).id());
        assert_eq!(report(Content::News(News::Ready)).id(), "c-1/n1/7/3");
    }

    #[test]
    fn what_unpacks_to_more_than_a_report_has_is_refused() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        io::copy(&mut io::repeat(b' ').take(REPORT_BYTES_MAX + 1), &mut encoder).unwrap();
        let bomb = encoder.finish().unwrap();
        assert!(bomb.len() < PART_BYTES_MAX * 2, "it is small: {}", bomb.len());
        assert!(matches!(Report::unpack(&bomb), Err(MessageError::TooLarge)));
        // Whoever makes a report finds out before it is sent.
        let large = outcome(json!(" ".repeat(REPORT_BYTES_MAX as usize)));
        assert!(matches!(large.pack(), Err(MessageError::TooLarge)));
    }

    #[test]
    fn another_protocol_is_told() {
        let other = Report { protocol: PROTOCOL + 1, ..outcome(json!(null)) };
        let error = Report::unpack(&other.pack().unwrap()).unwrap_err().to_string();
        assert_eq!(error, "a report of protocol 2; this is 1");
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
            assert!(matches!(Part::parse(bytes), Err(MessageError::Header)), "{bytes:?}");
        }
        let many = format!("{{\"id\":\"a\",\"part\":1,\"parts\":{}}}\n", PARTS_MAX + 1);
        assert!(matches!(Part::parse(many.as_bytes()), Err(MessageError::TooLarge)));
    }

    #[test]
    fn a_part_is_known_by_what_nobody_else_can_say() {
        let (two, three) = (vec![0; 4], vec![0; 6]);
        let id =
            |packed: &[u8], part, secret: &[u8]| cut("r", packed, 2).nth(part).unwrap().id(secret);
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
            let mut messages: Vec<_> = cut(&id, &packed, bytes_max.max(packed.len() / PARTS_MAX + 1))
                .map(|part| part.to_bytes())
                .collect();
            let count = messages.len();
            // One of them comes a second time, somewhere before the last.
            let twice = messages[again as usize % count].clone();
            messages.rotate_left(order as usize % count);
            messages.insert(order as usize % count, twice);
            let mut assembly = Assembly::default();
            let mut whole = Vec::new();
            for message in &messages {
                whole.extend(assembly.take("n1", &Part::parse(message).unwrap()).unwrap());
            }
            prop_assert!(!whole.is_empty());
            prop_assert_eq!(Report::unpack(&whole[0]).unwrap(), report);
        }

        #[test]
        fn any_bytes_are_taken_calmly(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Report::unpack(&bytes);
            if let Ok(part) = Part::parse(&bytes) {
                prop_assert_eq!(part.to_bytes().len() >= part.content.len(), true);
            }
        }
    }
}
