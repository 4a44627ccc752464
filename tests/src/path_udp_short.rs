//! Scenarios of `horolog path udp` with datagrams shorter than a full probe header.

use anyhow::{Context, Result, ensure};

use crate::path_udp::PathTestbed;
use crate::scenario::Scenario;
use crate::{ROOT_AND_IPV6, path_udp_short, scenarios};

pub(crate) fn all() -> Vec<Scenario> {
    Vec::from(scenarios!(ROOT_AND_IPV6, path_udp_short: short_datagrams_yield_every_statistic))
}

/// Datagrams as short as market data messages yield every statistic, over IPv4 and IPv6, at a fixed
/// rate and in ping-pong, with all options.
fn short_datagrams_yield_every_statistic() -> Result<()> {
    for ipv6 in [false, true] {
        let path = PathTestbed::new(ipv6)?;
        for more in
            [&["-r", "1k", "--timestamps"][..], &["--dscp", "ef", "-R", "2", "--flows", "2"]]
        {
            let options = ["-s", "16,17,32,47,48", "-n", "100", "--load-destination", "unicast"];
            let result = path.measure(path.at, &[&options[..], more].concat())?;
            let lengths: Vec<_> = result.rows.iter().map(|row| row.length).collect();
            ensure!(lengths == [16, 17, 32, 47, 48], "{lengths:?}");
            for row in &result.rows {
                ensure!((row.counts.sent, row.counts.received) == (100, 100), "{row:?}");
                ensure!(row.counts.invalid == 0, "{row:?}");
                let (there, back) = row.forward.zip(row.backward).context("no directions")?;
                ensure!((there.lost, back.lost) == (0, 0), "{row:?}");
                let (there, back) = row
                    .forward_ns
                    .as_ref()
                    .zip(row.backward_ns.as_ref())
                    .context("no one-way times")?;
                ensure!((there.count, back.count) == (100, 100), "{row:?}");
                let far = row.far_ns.as_ref().context("no time of the far end")?;
                ensure!(far.max < 100_000_000, "{far:?}");
                let classes = (row.dscp_forward, row.dscp_backward);
                ensure!(more[0] != "--dscp" || classes == (Some(46), Some(46)), "{classes:?}");
            }
        }
    }
    Ok(())
}
