"""The laboratory: Milepost measured beside its peers and beside what others have published.

Nothing here is shipped. `python3 -m lab --help` names the scenarios, README.md says how they work.
"""
