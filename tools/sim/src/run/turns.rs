//! Turns of a run: after each one a look at who has what was promised, as what journal devices have
//! changes from turn to turn (seed 8102624: where that was looked at only now and then, what the
//! internal journal had promised meanwhile was taken for a promise of the device that left).

use super::Run;
use crate::violation::{Violation, ensure};
use crate::world::{TURNS_MAX, World};

impl Run {
    /// One turn. False if nothing happens any more.
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
                "{what}: nothing under way; {}",
                self.world.summary()
            );
        }
        Err(World::without_end(what))
    }
}
