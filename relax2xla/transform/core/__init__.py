"""What a pass is, and what runs it."""

from relax2xla.transform.core.context import PassContext as PassContext
from relax2xla.transform.core.context import PassInfo as PassInfo
from relax2xla.transform.core.context import PassInstrument as PassInstrument
from relax2xla.transform.core.facts import ROWS as ROWS
from relax2xla.transform.core.facts import UNDIVIDED as UNDIVIDED
from relax2xla.transform.core.passes import DataflowBlockPass as DataflowBlockPass
from relax2xla.transform.core.passes import FunctionPass as FunctionPass
from relax2xla.transform.core.passes import Pass as Pass
from relax2xla.transform.core.passes import Sequential as Sequential
from relax2xla.transform.core.passes import dataflowblock_pass as dataflowblock_pass
from relax2xla.transform.core.passes import function_pass as function_pass
from relax2xla.transform.core.passes import module_pass as module_pass
from relax2xla.transform.core.passes import run_alone as run_alone
from relax2xla.transform.core.passes import run_enabled as run_enabled
from relax2xla.transform.core.passes import run_on_function as run_on_function
from relax2xla.transform.core.registry import register as register
