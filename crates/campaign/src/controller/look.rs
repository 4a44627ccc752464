//! Which of the agents that say that they are there can be given something to do, and why the
//! others cannot: another version, a clock that is off, a clock that nobody knows of. Pure.

use std::time::Duration;

use serde::Deserialize;

use crate::fault::shown;
use crate::order::{AgentState, ClockState, PROTOCOL};

/// Bytes of what an agent says of itself, at most.
const STATE_BYTES_MAX: usize = 64 << 10;

/// The agents that are there.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Look {
    /// Those that can be given something to do.
    pub usable: Vec<AgentState>,
    /// The others by their names, and why.
    pub unusable: Vec<(String, String)>,
}

/// What any version says of itself.
#[derive(Deserialize)]
struct Head {
    protocol: u32,
    version: String,
    name: String,
}

/// Sorts agents by what they say of themselves. Without `max_offset` no clock is looked at.
pub fn look<'a>(
    states: impl IntoIterator<Item = &'a [u8]>,
    version: &str,
    max_offset: Option<Duration>,
) -> Look {
    let mut look = Look::default();
    for state in states {
        let Some(head) = head(state) else {
            look.unusable.push(("?".to_owned(), "what it says cannot be read".to_owned()));
            continue;
        };
        match usable(state, &head, version, max_offset) {
            Ok(state) => look.usable.push(state),
            Err(why) => look.unusable.push((shown(&head.name, SHOWN_MAX), why)),
        }
    }
    look
}

impl Look {
    /// The same, with those that work for a campaign among those that cannot be used.
    #[must_use]
    pub fn of_free(self) -> Self {
        let Self { usable, mut unusable } = self;
        let (free, busy): (Vec<_>, _) = usable.into_iter().partition(|state| state.busy.is_none());
        unusable.extend(busy.into_iter().filter_map(|state: AgentState| {
            let why = format!("it works for campaign {}; wait for its end", state.busy?);
            Some((state.name.to_string(), why))
        }));
        Self { usable: free, unusable }
    }
}

fn head(state: &[u8]) -> Option<Head> {
    serde_json::from_slice(state).ok().filter(|_| state.len() <= STATE_BYTES_MAX)
}

/// Characters of what an agent says that are shown.
const SHOWN_MAX: usize = 64;

fn usable(
    state: &[u8],
    head: &Head,
    version: &str,
    max_offset: Option<Duration>,
) -> Result<AgentState, String> {
    if head.protocol != PROTOCOL || head.version != version {
        return Err(format!(
            "it is horolog {}, protocol {}, and this is {version}, protocol {PROTOCOL}; install \
             one version",
            shown(&head.version, SHOWN_MAX),
            head.protocol
        ));
    }
    let state: AgentState =
        serde_json::from_slice(state).map_err(|_| "what it says cannot be read".to_owned())?;
    if let Some(max_offset) = max_offset {
        clock_fits(state.clock.as_ref(), max_offset)?;
    }
    Ok(state)
}

/// Whether a clock may be right. One that is off by more than is allowed even at best is not.
fn clock_fits(clock: Option<&ClockState>, max_offset: Duration) -> Result<(), String> {
    let max_ms = max_offset.as_secs_f64() * 1e3;
    let Some(ClockState { offset_ns, error_ns, source }) = clock else {
        return Err(format!(
            "nothing is known of its clock, which may be off by {max_ms} ms; have a time service \
             keep it, or start the agent with --clock-server"
        ));
    };
    let least_ns = offset_ns.unsigned_abs().saturating_sub(*error_ns);
    if u128::from(least_ns) <= max_offset.as_nanos() {
        return Ok(());
    }
    let side = if *offset_ns > 0 { "ahead" } else { "behind" };
    let (offset_ms, error_ms) = (offset_ns.unsigned_abs() as f64 / 1e6, *error_ns as f64 / 1e6);
    Err(format!(
        "its clock is {offset_ms:.3} ms {side}, give or take {error_ms:.3} ms ({}), and may be off \
         by {max_ms} ms; set it right, or raise the plan's max-offset",
        shown(source, SHOWN_MAX)
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

    fn looked(state: &serde_json::Value) -> Look {
        let text = state.to_string();
        look([text.as_bytes()], "0.1.0", Some(Duration::from_millis(1)))
    }

    fn why(state: &serde_json::Value) -> String {
        let mut look = looked(state);
        assert_eq!(look.usable, []);
        look.unusable.remove(0).1
    }

    fn clock(offset_ns: i64, error_ns: u64) -> serde_json::Value {
        json!({ "offset_ns": offset_ns, "error_ns": error_ns, "source": "kernel" })
    }

    #[test]
    fn clocks_that_may_be_right_are_taken() {
        for (offset_ns, error_ns) in [(0, 0), (1_000_000, 0), (-1_500_000, 500_000), (0, 1 << 60)] {
            let look = looked(&state("n1", &clock(offset_ns, error_ns)));
            assert_eq!(look.usable.len(), 1, "{offset_ns} {error_ns}");
        }
    }

    #[test]
    fn clocks_that_are_off_or_unknown_are_named() {
        assert_eq!(
            why(&state("n1", &clock(-2_500_000, 400_000))),
            "its clock is 2.500 ms behind, give or take 0.400 ms (kernel), and may be off by 1 ms; \
             set it right, or raise the plan's max-offset"
        );
        assert!(why(&state("n1", &clock(i64::MIN, 0))).contains(" ms behind"));
        assert!(why(&state("n1", &json!(null))).contains("start the agent with --clock-server"));
        let text = state("n1", &json!(null)).to_string();
        assert_eq!(look([text.as_bytes()], "0.1.0", None).usable.len(), 1);
    }

    #[test]
    fn who_is_busy_is_named() {
        let mut busy = state("n1", &clock(0, 0));
        busy["busy"] = json!("c-1");
        let look = looked(&busy);
        assert_eq!(look.usable.len(), 1);
        let look = look.of_free();
        let why = "it works for campaign c-1; wait for its end";
        assert_eq!(look.unusable, [("n1".to_owned(), why.to_owned())]);
        let free = looked(&state("n1", &clock(0, 0))).of_free();
        assert_eq!((free.usable.len(), free.unusable.len()), (1, 0));
    }

    #[test]
    fn other_versions_are_named_whatever_else_they_say() {
        let mut other = json!({ "protocol": 2, "version": "9.0", "name": "n9", "colour": "blue" });
        assert_eq!(looked(&other).unusable[0].0, "n9");
        assert_eq!(
            why(&other),
            "it is horolog 9.0, protocol 2, and this is 0.1.0, protocol 1; install one version"
        );
        other["protocol"] = json!(1);
        assert!(why(&other).starts_with("it is horolog 9.0, protocol 1"));
        other["version"] = json!("0.1.0");
        assert_eq!(why(&other), "what it says cannot be read");
        assert_eq!(looked(&json!([])).unusable[0].0, "?");
    }
}
