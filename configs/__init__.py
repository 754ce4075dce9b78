"""What a run does, field by field: `get_config` of each module.

A folder `configs` of the user's own adds to this one. What stands in both is this one's.
"""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
