//! Selection of the present agents that can be used, and the reasons why the others cannot: another
//! version, a clock offset that is too large or unknown, or another campaign. Pure.

use std::time::Duration;

use serde::Deserialize;

use crate::file_error::sanitised;
use crate::order::{AgentClockOffset, AgentState, PROTOCOL};

/// Largest size of an agent's state, in bytes.
const STATE_BYTES_MAX: usize = 64 << 10;

/// Present agents, divided into usable and unusable ones.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PresentAgents {
    /// Agents that can be used.
    pub usable: Vec<AgentState>,
    /// Names of the other agents, and the reasons.
    pub unusable: Vec<(String, String)>,
}

/// Part of an agent's state that is the same in all versions of horolog.
#[derive(Deserialize)]
struct AgentStateHeader {
    protocol: u32,
    version: String,
    name: String,
}

/// Classifies agents as usable or unusable by their published states. Without `max_offset`, clocks
/// are not checked.
pub fn classify_agents<'a>(
    states: impl IntoIterator<Item = &'a [u8]>,
    version: &str,
    max_offset: Option<Duration>,
) -> PresentAgents {
    let mut eligible = PresentAgents::default();
    for state in states {
        let Some(head) = parse_header(state) else {
            eligible.unusable.push(("?".to_owned(), "unreadable state".to_owned()));
            continue;
        };
        match parse_usable(state, &head, version, max_offset) {
            Ok(state) => eligible.usable.push(state),
            Err(why) => eligible.unusable.push((sanitised(&head.name, SHOWN_MAX), why)),
        }
    }
    eligible
}

impl PresentAgents {
    /// Moves agents that execute an order to the unusable ones.
    #[must_use]
    pub fn without_busy(self) -> Self {
        let Self { usable, mut unusable } = self;
        let (free, busy): (Vec<_>, _) = usable.into_iter().partition(|state| state.busy.is_none());
        unusable.extend(busy.into_iter().filter_map(|state: AgentState| {
            let why = format!("it is busy with campaign {}; wait for its end", state.busy?);
            Some((state.name.to_string(), why))
        }));
        Self { usable: free, unusable }
    }
}

fn parse_header(state: &[u8]) -> Option<AgentStateHeader> {
    serde_json::from_slice(state).ok().filter(|_| state.len() <= STATE_BYTES_MAX)
}

/// Largest number of characters shown of an agent's text.
const SHOWN_MAX: usize = 64;

fn parse_usable(
    state: &[u8],
    head: &AgentStateHeader,
    version: &str,
    max_offset: Option<Duration>,
) -> Result<AgentState, String> {
    if head.protocol != PROTOCOL || head.version != version {
        return Err(format!(
            "it is horolog {}, protocol {}, and this is {version}, protocol {PROTOCOL}; install \
             one version",
            sanitised(&head.version, SHOWN_MAX),
            head.protocol
        ));
    }
    let state: AgentState =
        serde_json::from_slice(state).map_err(|_| "unreadable state".to_owned())?;
    if let Some(max_offset) = max_offset {
        check_clock(state.clock.as_ref(), max_offset)?;
    }
    Ok(state)
}

/// Checks that the offset of a clock may be within `max_offset`, given its error bound. `Err` holds
/// the reason in one line.
fn check_clock(clock: Option<&AgentClockOffset>, max_offset: Duration) -> Result<(), String> {
    let max_ms = max_offset.as_secs_f64() * 1e3;
    let Some(AgentClockOffset { offset_ns, error_ns, source }) = clock else {
        return Err(format!(
            "its clock offset is unknown, and the limit is {max_ms} ms; run a time service on its \
             host, or start the agent with --clock-server"
        ));
    };
    let least_ns = offset_ns.unsigned_abs().saturating_sub(*error_ns);
    if u128::from(least_ns) <= max_offset.as_nanos() {
        return Ok(());
    }
    let side = if *offset_ns > 0 { "ahead" } else { "behind" };
    let (offset_ms, error_ms) = (offset_ns.unsigned_abs() as f64 / 1e6, *error_ns as f64 / 1e6);
    Err(format!(
        "its clock is {offset_ms:.3} ms {side}, ± {error_ms:.3} ms ({}), and the limit is {max_ms} \
         ms; synchronise it, or raise the plan's max-offset",
        sanitised(source, SHOWN_MAX)
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(name: &str, clock: &serde_json::Value) -> serde_json::Value {
        json!({
            "protocol": 1, "version": "0.1.0", "name": name, "incarnation": 1, "labels": {},
            "addresses": ["192.0.2.1"],
            "abilities": { "root": true, "cores": 2, "kinds": ["serve"] },
            "clock": clock,
        })
    }

    fn classify_one(state: &serde_json::Value) -> PresentAgents {
        let text = state.to_string();
        classify_agents([text.as_bytes()], "0.1.0", Some(Duration::from_millis(1)))
    }

    fn why(state: &serde_json::Value) -> String {
        let mut eligible = classify_one(state);
        assert_eq!(eligible.usable, []);
        eligible.unusable.remove(0).1
    }

    fn clock(offset_ns: i64, error_ns: u64) -> serde_json::Value {
        json!({ "offset_ns": offset_ns, "error_ns": error_ns, "source": "kernel" })
    }

    #[test]
    fn clocks_that_may_be_right_are_taken() {
        for (offset_ns, error_ns) in [(0, 0), (1_000_000, 0), (-1_500_000, 500_000), (0, 1 << 60)] {
            let eligible = classify_one(&state("n1", &clock(offset_ns, error_ns)));
            assert_eq!(eligible.usable.len(), 1, "{offset_ns} {error_ns}");
        }
    }

    #[test]
    fn clocks_that_are_off_or_unknown_are_named() {
        assert_eq!(
            why(&state("n1", &clock(-2_500_000, 400_000))),
            "its clock is 2.500 ms behind, ± 0.400 ms (kernel), and the limit is 1 ms; \
             synchronise it, or raise the plan's max-offset"
        );
        assert!(why(&state("n1", &clock(i64::MIN, 0))).contains(" ms behind"));
        assert!(why(&state("n1", &json!(null))).contains("start the agent with --clock-server"));
        let text = state("n1", &json!(null)).to_string();
        assert_eq!(classify_agents([text.as_bytes()], "0.1.0", None).usable.len(), 1);
    }

    #[test]
    fn who_is_busy_is_named() {
        let mut busy = state("n1", &clock(0, 0));
        busy["busy"] = json!("c-1");
        let eligible = classify_one(&busy);
        assert_eq!(eligible.usable.len(), 1);
        let eligible = eligible.without_busy();
        let why = "it is busy with campaign c-1; wait for its end";
        assert_eq!(eligible.unusable, [("n1".to_owned(), why.to_owned())]);
        let free = classify_one(&state("n1", &clock(0, 0))).without_busy();
        assert_eq!((free.usable.len(), free.unusable.len()), (1, 0));
    }

    #[test]
    fn other_versions_are_named_whatever_else_their_state_contains() {
        let mut other = json!({ "protocol": 2, "version": "9.0", "name": "n9", "colour": "blue" });
        assert_eq!(classify_one(&other).unusable[0].0, "n9");
        assert_eq!(
            why(&other),
            "it is horolog 9.0, protocol 2, and this is 0.1.0, protocol 1; install one version"
        );
        other["protocol"] = json!(1);
        assert!(why(&other).starts_with("it is horolog 9.0, protocol 1"));
        other["version"] = json!("0.1.0");
        assert_eq!(why(&other), "unreadable state");
        assert_eq!(classify_one(&json!([])).unusable[0].0, "?");
    }
}
