//! Unchanged pages that are rewritten, so that the next checkpoint moves them to other addresses.

use super::CheckpointState;
use crate::path::Durability;
use crate::store::map::PageSlot;
use crate::store::volume::Volumes;
use windrow_format::checkpoint::{OBJECT_LEAF, OBJECT_LIST};
use windrow_types::Address;

impl CheckpointState {
    /// Marks a table page or leaf in a victim or a damaged row for rewriting. True if it is in use.
    /// (Every checkpoint rewrites all list pages.)
    pub(crate) fn rewrite(&mut self, object: u32, index: u32, address: Address) -> bool {
        match object {
            OBJECT_LEAF => {
                // The entry's index is the running number of the leaf in its checkpoint: find the
                // leaf by address.
                let leaf = self
                    .leaves
                    .iter()
                    .find(|(_, p)| p.present && p.address == address)
                    .map(|(key, _)| *key);
                self.dirty_leaves.extend(leaf);
                leaf.is_some()
            }
            OBJECT_LIST => self.list.iter().any(|p| p.present && p.address == address),
            _ => {
                let used = self
                    .tables
                    .get(&object)
                    .and_then(|t| t.get(index as usize))
                    .is_some_and(|p| p.present && p.address == address);
                if used {
                    self.rewrite.insert((object, index));
                }
                used
            }
        }
    }

    /// Marks table pages and leaves for which `lies` is true for rewriting; list pages always are.
    /// True if there are any.
    pub(crate) fn rewrite_where(&mut self, lies: impl Fn(Address) -> bool) -> bool {
        let mut any = self.list.iter().any(|p| p.present && lies(p.address));
        for (key, _) in self
            .leaves
            .iter()
            .filter(|(_, p)| p.present && lies(p.address))
        {
            any = true;
            self.dirty_leaves.insert(*key);
        }
        for (object, pages) in &self.tables {
            for (index, _) in (0..)
                .zip(pages)
                .filter(|(_, p)| p.present && lies(p.address))
            {
                any = true;
                self.rewrite.insert((*object, index));
            }
        }
        any
    }

    /// Reports the addresses of table pages, leaves and list pages.
    pub(crate) fn table_addresses(&self, tell: impl FnMut(Address)) {
        let pages = self
            .tables
            .values()
            .flatten()
            .chain(self.leaves.values())
            .chain(&self.list);
        pages
            .filter(|pointer| pointer.present)
            .map(|pointer| pointer.address)
            .for_each(tell);
    }
}

impl Durability {
    /// Marks every page of the checkpoint for which `lies` is true for rewriting. (List pages
    /// always are.) Walks all pages of the maps.
    pub(crate) fn rewrite_pages_where(
        &mut self,
        volumes: &mut Volumes,
        lies: impl Fn(Address) -> bool,
    ) {
        self.checkpoint.rewrite_where(&lies);
        for slot in (0..volumes.arena.slots()).map(PageSlot) {
            if volumes
                .arena
                .meta(slot)
                .is_some_and(|m| m.pointer.present && lies(m.pointer.address))
            {
                volumes.arena.mark_dirty(slot);
            }
        }
    }
}
