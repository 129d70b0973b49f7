//! Lines of the kernel's own trace (`trace_pipe` of tracefs) for the event `block_bio_queue`:
//!
//! ```text
//!   fio-4711  [001] .....  1234.567890: block_bio_queue: 254,0 WS 81920 + 8 [fio]
//! CPU:1 [LOST 123 EVENTS]
//! ```

use super::fields::{Fields, number};
use super::kernel::{kind_of, sectors};
use super::{Found, NOTHING, Problem};

/// The event that is read.
pub const EVENT: &str = "block_bio_queue";

/// Content of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// A request, and the flush that precedes it.
    Requests(Found),
    /// Number of events lost by the kernel.
    Lost(u64),
    /// Neither.
    Aside,
}

/// Parses a line. Times are those of the kernel's clock, nanoseconds; the device is number 0.
///
/// # Errors
/// If it is a line of the event, but malformed.
pub fn tracepoint(line: &str) -> Result<Line, Problem> {
    if let Some((_, rest)) = line.split_once("[LOST ") {
        let lost = rest
            .split(' ')
            .next()
            .and_then(|count| number(count.as_bytes()))
            .ok_or("the number of lost events cannot be read")?;
        return Ok(Line::Lost(lost));
    }
    let Some((before, after)) = line.split_once(": block_bio_queue: ") else {
        return Ok(Line::Aside);
    };
    let stamp = before.rsplit(' ').next().unwrap_or_default();
    let time = Fields::spaces(stamp.as_bytes()).time("time", 1_000_000_000)?;
    let mut fields = Fields::spaces(after.as_bytes());
    fields.need("device")?;
    let what = fields.need("kind of request")?;
    let found = sectors(&mut fields, kind_of(what)?, 0, time)?;
    Ok(if found == NOTHING {
        Line::Aside
    } else {
        Line::Requests(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Kind, Request};

    proptest::proptest! {
        /// Any line is parsed or refused.
        #[test]
        fn any_line(start in ".{0,40}", rest in "[ -~]{0,60}") {
            drop(tracepoint(&start));
            drop(tracepoint(&format!("{start}: block_bio_queue: {rest}")));
            drop(tracepoint(&format!("CPU:1 [LOST {rest}")));
        }
    }

    #[test]
    fn lines_as_the_kernel_writes_them() {
        let read = |line: &str| tracepoint(line).expect("a line");
        let write = Request::new(Kind::Write, 0, 81_920 * 512, 4096, 1_234_567_890_000);
        assert_eq!(
            read(
                "           <...>-4711    [001] .....  1234.567890: block_bio_queue: 254,0 WS 81920 + 8 [fio]"
            ),
            Line::Requests([None, Some(write)])
        );
        let fua = Request { fua: true, ..write };
        assert_eq!(
            read(
                "kworker/u8:2-77 [000] d..1. 1234.567890: block_bio_queue: 254,0 WFS 81920 + 8 [my prog: x]"
            ),
            Line::Requests([None, Some(fua)])
        );
        let flush = Request::new(Kind::Flush, 0, 0, 0, 1_000_000_000);
        assert_eq!(
            read("a b-1 [000] .....     1.000000: block_bio_queue: 8,16 FWS 0 + 0 [jbd2]"),
            Line::Requests([Some(flush), None])
        );
        let trim = Request::new(Kind::Trim, 0, 0, 1 << 20, 1_000_000_000);
        assert_eq!(
            read("f-1 [000] .....     1.000000: block_bio_queue: 8,16 D 0 + 2048 [fstrim]"),
            Line::Requests([None, Some(trim)])
        );
        assert_eq!(
            read("f-1 [000] .....     1.000000: block_bio_queue: 8,16 N 0 + 2048 [mkfs]"),
            Line::Requests([None, Some(trim)])
        );
        assert_eq!(
            read("f-1 [000] .....     1.000000: block_bio_queue: 8,16 ZR 0 + 2048 [mkfs]"),
            Line::Aside
        );
        assert_eq!(
            (
                read("CPU:1 [LOST 123 EVENTS]"),
                read("# tracer: nop"),
                read("")
            ),
            (Line::Lost(123), Line::Aside, Line::Aside)
        );
        assert!(
            tracepoint("f-1 [000] ..... x: block_bio_queue: 8,16 W 0 + 8 [f]").is_err()
                && tracepoint("f [0] . 1.0: block_bio_queue: 8,16 W x + 8 [f]").is_err()
        );
    }
}
