"""The PuppetMaster: deploys a topology over hosts, drives it, and tells what happens."""
