//! Turns of a run. The keepers are updated after each turn, because the content of journal devices
//! changes from turn to turn (seed 8102624: with occasional updates, durable LSNs of the internal
//! journal were attributed to the device that left).

use super::Run;
use crate::violation::{Violation, ensure};
use crate::world::{TURNS_MAX, World};

impl Run {
    /// Runs one turn. False if nothing happens any more.
    pub(super) fn turn(&mut self) -> Result<bool, Violation> {
        self.switch_goes_on()?;
        let alive = self.world.turn()?;
        self.note_devices();
        Ok(alive)
    }

    /// As [`World::run_while`].
    pub(super) fn run_while(
        &mut self,
        what: &str,
        mut condition: impl FnMut(&World) -> bool,
    ) -> Result<(), Violation> {
        for _ in 0..TURNS_MAX {
            if !condition(&self.world) {
                return Ok(());
            }
            let alive = self.turn()?;
            ensure!(
                alive || !condition(&self.world),
                Stuck,
                "{what}: nothing in progress; {}",
                self.world.summary()
            );
        }
        Err(World::without_end(what))
    }
}
