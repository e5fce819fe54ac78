"""Which adapter reads `objects.endpoint_url`.

Rule: obstore unless another client is asked for; plain HTTP where nothing of the store's own
protocol is needed; a folder for `file://`. Owner: the application and the library call.
"""

from consumers import config
from consumers.adapters.objects_common import folder_of
from consumers.adapters.objects_direct import DirectObjects
from consumers.adapters.objects_folder import FolderObjects
from consumers.adapters.objects_obstore import ObstoreObjects
from consumers.adapters.objects_s3fs import S3fsObjects
from consumers.ports import Objects


def open_objects(settings: config.Objects) -> Objects:
    folder = folder_of(settings.endpoint_url)
    if folder is not None:
        return FolderObjects(folder)
    if settings.client == "s3fs":
        return S3fsObjects(settings)
    objects = ObstoreObjects(settings)
    return DirectObjects(objects, settings) if DirectObjects.is_for(settings) else objects
